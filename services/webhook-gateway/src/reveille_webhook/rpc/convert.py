"""Between messages and the gateway's values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from reveille.webhook.v1 import delivery_service_pb2, endpoint_service_pb2
from reveille_runtime.validation import Violations, to_timestamp
from reveille_webhook.domain.endpoint import (
    DEFAULT_BODY_BYTES,
    LONGEST_PATH,
    MOST_BODY_BYTES,
    MOST_MARKERS,
    MOST_PER_MINUTE,
    MOST_SENDERS,
    Endpoint,
    Options,
    Secret,
)
from reveille_webhook.domain.exclusion import LONGEST_TEXT
from reveille_webhook.domain.generic import Generic, misplaced, violations
from reveille_webhook.domain.lane import is_path
from reveille_webhook.domain.provider import BodyHash, Computed, Provider, Source
from reveille_webhook.domain.scheme import Header, Item, Key, Path, Scheme
from reveille_webhook.domain.states import DeliveryState

HASH_BYTES = 32
STATES: Mapping[int, DeliveryState] = {
    delivery_service_pb2.DeliveryState.Value(f"DELIVERY_STATE_{state.name}"): state
    for state in DeliveryState
}


def read_endpoint(found: Violations, message: endpoint_service_pb2.Endpoint) -> Endpoint:
    """Parse a wish."""
    if len(message.token_sha256) != HASH_BYTES:
        found.add("endpoint.token_sha256", f"must have {HASH_BYTES} bytes", "INVALID_FIELD")
    previous = message.previous_token_sha256
    has_expiry = message.HasField("previous_token_expire_time")
    if len(previous) not in {0, HASH_BYTES}:
        found.add(
            "endpoint.previous_token_sha256", f"must have {HASH_BYTES} bytes", "INVALID_FIELD"
        )
    if bool(previous) != has_expiry:
        found.add(
            "endpoint.previous_token_expire_time",
            "belongs to a token before, and that to it",
            "INVALID_FIELD",
        )
    return Endpoint(
        id=found.uuid("endpoint.endpoint_id", message.endpoint_id),
        workspace_id=found.uuid("endpoint.workspace_id", message.workspace_id),
        token_sha256=message.token_sha256,
        previous_token_sha256=previous or None,
        previous_token_expires_at=(
            found.timestamp(
                "endpoint.previous_token_expire_time", message.previous_token_expire_time
            )
            if has_expiry
            else None
        ),
        provider=found.text("endpoint.provider", message.provider, minimum=1, maximum=50),
        max_body_bytes=found.integer(
            "endpoint.max_body_bytes",
            message.max_body_bytes or DEFAULT_BODY_BYTES,
            minimum=1,
            maximum=MOST_BODY_BYTES,
        ),
        revision=found.integer(
            "endpoint.revision", message.revision, minimum=1, maximum=(1 << 63) - 1
        ),
        options=read_options(found, "endpoint.options", message.provider, message.options),
    )


def write_secret(secret: Secret) -> endpoint_service_pb2.Secret:
    """Show a secret, by its hint."""
    return endpoint_service_pb2.Secret(
        secret_id=str(secret.id),
        hint=secret.hint,
        create_time=to_timestamp(secret.created_at),
        expire_time=to_timestamp(secret.expires_at),
        last_use_time=to_timestamp(secret.last_used_at),
    )


def write_provider(provider: Provider) -> endpoint_service_pb2.Provider:
    """Show a sender of the provider table: its names, and how it signs if a template says that."""
    scheme = provider.schemes[0]
    message = endpoint_service_pb2.Provider(
        name=provider.name,
        signature_header=next(
            (each.name for each in scheme.sources if isinstance(each, Header)), ""
        ),
        demands_secret=provider.demands_secret,
        event_places=map(_write_place, provider.event),
        dedupe_places=map(_write_place, provider.dedupe),
    )
    if provider.special is None and isinstance(scheme.sources[0], Header):
        message.scheme.CopyFrom(_write_scheme(scheme))
    return message


def _write_place(source: Source) -> endpoint_service_pb2.NamePlace:
    match source:
        case Header():
            return endpoint_service_pb2.NamePlace(header=source.name)
        case Path():
            return endpoint_service_pb2.NamePlace(body_path=source.path)
        case BodyHash():
            return endpoint_service_pb2.NamePlace(body_hash=True)
        case Computed():
            return endpoint_service_pb2.NamePlace()
        case _:
            assert_never(source)


def _write_scheme(scheme: Scheme) -> endpoint_service_pb2.SignatureScheme:
    kind = scheme.kinds[0]
    stamp = scheme.stamp.source if scheme.stamp else None
    return endpoint_service_pb2.SignatureScheme(
        algorithm=kind.algorithm.value,
        encoding=scheme.encoding.value,
        prefix=kind.prefix,
        # To whoever signs, Meta's is a text like any other.
        key=(Key.TEXT if kind.key is Key.META else kind.key).value,
        message=scheme.message,
        timestamp_header=stamp.name if isinstance(stamp, Header) else "",
        timestamp_prefix=stamp.prefix if isinstance(stamp, Item) else "",
        timestamp_unit=scheme.stamp.unit.value if scheme.stamp else "",
        id_header=scheme.id.name if isinstance(scheme.id, Header) else "",
        separator=scheme.separator,
    )


def read_options(
    found: Violations, path: str, provider: str, options: endpoint_service_pb2.EndpointOptions
) -> Options:
    """Parse what a hook is to do otherwise than usual; `path` is the field that says so."""
    generic = None
    if options.HasField("generic"):
        generic = read_generic(found, f"{path}.generic", provider, options.generic)
    for name, values, most in (
        ("excluded_senders", options.excluded_senders, MOST_SENDERS),
        ("own_markers", options.own_markers, MOST_MARKERS),
    ):
        if len(values) > most:
            found.add(f"{path}.{name}", f"at most {most}", "INVALID_FIELD")
        for index, value in enumerate(values[:most]):
            found.text(f"{path}.{name}[{index}]", value, minimum=1, maximum=LONGEST_TEXT)
    policies = endpoint_service_pb2.ContentPolicy.values()
    if options.content_policy not in policies:
        found.add(f"{path}.content_policy", "is not known", "INVALID_ENUM")
    return Options(
        generic=generic,
        refuses_copies=options.content_policy == endpoint_service_pb2.CONTENT_POLICY_REFUSE,
        rate_per_minute=_limit(found, f"{path}.rate_per_minute", options.rate_per_minute),
        hourly_budget=_limit(found, f"{path}.hourly_budget", options.hourly_budget),
        lane_path=_lane_path(found, f"{path}.lane_path", options.lane_path),
        excluded_senders=tuple(options.excluded_senders),
        own_markers=tuple(options.own_markers),
    )


def read_generic(
    found: Violations, path: str, provider: str, given: endpoint_service_pb2.GenericScheme
) -> Generic:
    """Parse how a hook's sender signs."""
    generic = Generic(
        given.header,
        given.algorithm or "sha256",
        given.encoding or "hex",
        given.prefix,
        given.separator,
        given.event,
    )
    named = [each.name for each, _ in given.ListFields()]
    # Of what means nothing here its value does not matter.
    problems = dict(violations(provider, generic)) | dict(misplaced(provider, named))
    for name, problem in problems.items():
        found.add(path + (f".{name}" if name else ""), problem, "INVALID_FIELD")
    return generic


def _lane_path(found: Violations, field: str, given: str) -> str | None:
    if not given:
        return None
    if not is_path(given):
        found.add(field, "must be names and positions with a dot between them, such as a.b.0.c")
    return found.text(field, given, maximum=LONGEST_PATH, strip=False)


def _limit(found: Violations, field: str, value: int) -> int | None:
    return found.integer(field, value, minimum=0, maximum=MOST_PER_MINUTE) or None
