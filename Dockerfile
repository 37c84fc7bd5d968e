# turnlog without a database of its own: TURNLOG_DATABASE_URL names the PostgreSQL to use.
FROM python:3.13-slim AS build
WORKDIR /src
RUN python -m venv --without-pip /opt/turnlog
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY migrations migrations
COPY app app
# The versions are those that the tests ran with. The token vocabularies are package data and come along.
RUN pip --python /opt/turnlog/bin/python install --no-cache-dir -c constraints.txt '.[fast]'

FROM python:3.13-slim
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin turnlog
COPY --from=build /opt/turnlog /opt/turnlog
ENV PATH=/opt/turnlog/bin:$PATH
USER 10001
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=40s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen('http://127.0.0.1:' + os.environ.get('TURNLOG_PORT', '8080') + '/healthz', timeout=2)"]
# Nobody outside the container is served until there is a key: set TURNLOG_BOOTSTRAP_KEY, or run `turnlog keys create` in
# the container.
CMD ["turnlog", "serve", "--host", "0.0.0.0"]
