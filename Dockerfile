# One image for every process of docker-compose.yml; the command picks which.

FROM python:3.11.14-slim-trixie AS build
WORKDIR /src
# Also holds the tools that build our own packages.
ENV PIP_CONSTRAINT=/src/constraints.txt \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/reveille
COPY constraints.txt ./
COPY libs/contracts libs/contracts
COPY libs/cron libs/cron
COPY libs/jobs libs/jobs
COPY libs/runtime libs/runtime
COPY services services
RUN /opt/reveille/bin/pip install --compile \
    ./libs/contracts ./libs/cron ./libs/jobs ./libs/runtime \
    ./services/scheduler ./services/autopilot ./services/webhook-gateway ./services/heartbeat

FROM python:3.11.14-slim-trixie
LABEL org.opencontainers.image.title="Reveille" \
      org.opencontainers.image.description="Turns triggers into durable runs of AI agents" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/reveille /opt/reveille
# The spool is writable by whichever user the containers are told to run as.
RUN install -d -m 1777 /var/lib/reveille /var/lib/reveille/spool
ENV PATH=/opt/reveille/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
WORKDIR /var/lib/reveille
USER 10001:10001
CMD ["python", "-c", "raise SystemExit('name a service: python -m reveille_scheduler, ...')"]
