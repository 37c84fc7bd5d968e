"""The only SQL. Functions take an open handle; the service decides where a transaction begins and ends."""
