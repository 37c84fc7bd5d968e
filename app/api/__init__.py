"""HTTP: what a request must look like, and what an answer does."""
