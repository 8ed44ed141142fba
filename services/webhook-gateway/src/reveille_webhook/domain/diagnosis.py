"""Why a signature failed: the usual mistakes, each tried in turn. What was expected is never told.

It looks once, when the request is here: signatures are not kept. Nobody vouches for that request,
so what it may cost is bounded: the tries in `tries`, what is made of the body in `body_variants`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from reveille_webhook.domain.body_variants import is_cheap_to_read, variants
from reveille_webhook.domain.keys import seconds_of
from reveille_webhook.domain.provider import Provider
from reveille_webhook.domain.request import Headers, Request, values_of
from reveille_webhook.domain.scheme import (
    Algorithm,
    Encoding,
    Header,
    Key,
    Scheme,
    Unit,
    headers_of,
)
from reveille_webhook.domain.signature import scheme_of, stamp_of
from reveille_webhook.domain.tries import Tries

_ANY_TIME = 10**12
# Of the secrets of others the likeliest; the rest are tried with what work is left at the end.
_LIKELY_OTHERS = 20
Change = Callable[[bytes], bytes]
_HMACS = (Algorithm.HMAC_SHA1, Algorithm.HMAC_SHA256, Algorithm.HMAC_SHA512)
_PREFIXES = ("sha256=", "sha1=", "v1=", "v0=", "Bearer ")

TEXTS = {
    "header_missing": "the header that holds the signature did not come; has the sender a secret?",
    "header_twice": "the header that holds the signature came more than once",
    "other_provider": "it is signed as {detail} signs; is the hook's provider right?",
    "no_secret": "the hook has no live signing secret",
    "clock_off": "the signature is right, but its time is {detail} s off; check the clocks",
    "time_unreadable": "the time that is signed is missing, or is not written as it has to be",
    "time_unit": "the signature is right, but its time is written as {detail}, "
    "which is not what this sender does",
    "prefix": "the signature is right, but what stands before it is not",
    "bearer": "the header is Bearer and a live secret; the secret has to be all of the header",
    "encoding": "the signature is right, but is written in another encoding: {detail}",
    "algorithm": "the signature is right, but is made with another algorithm: {detail}",
    "newline_in_secret": "the signature is right with a line end or a space more in one secret",
    "secret_encoding": "the signature is right with the secret read as {detail}",
    "reserialized_body": "the signature is right for the same JSON written otherwise ({detail}): "
    "something on the way read the body and wrote it again",
    "compressed_body": "the signature is right for the body before it was compressed; "
    "what is signed is what is sent",
    "trailing_newline": "the signature is right with a line end more or less after the body",
    "body_encoding": "the signature is right for the body without its byte order mark",
    "form_content": "the signature is over what the form holds, not over the form",
    "url": "the signature is right for another address ({detail}); check REVEILLE_PUBLIC_URL",
    "expired_secret": "a secret of this hook matches that has expired",
    "other_hooks_secret": "the secret of another hook in the workspace matches: {detail}",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason; `detail` is never taken from a credential."""

    code: str
    detail: str = ""

    @property
    def note(self) -> str:
        """Give it as a row keeps it."""
        return f"{self.code}:{self.detail}" if self.detail else self.code


def finding_of(note: str) -> Finding:
    """Read a note."""
    code, _, detail = note.partition(":")
    return Finding(code, detail)


def text_of(finding: Finding) -> str:
    """Say a finding in words."""
    return TEXTS.get(finding.code, finding.code).format(detail=finding.detail)


@dataclass(frozen=True, slots=True)
class OtherSecret:
    """A secret that does not count at the hook: whose it is, or empty for an expired own one."""

    endpoint_id: str
    value: bytes


def diagnose(
    provider: Provider,
    secrets: Sequence[bytes],
    others: Sequence[OtherSecret],
    request: Request,
    now: float,
    table: Sequence[Provider] = (),
) -> list[Finding]:
    """Find why a signature failed, likeliest first; empty when it is none of the usual reasons."""
    found = list(_absent(provider, request.headers, table))
    if not any(secrets):
        return [Finding("no_secret"), *found]
    if found:
        return found
    tries = Tries(provider, request, now)
    if tries.reads_body and not is_cheap_to_read(request.body):
        return []
    scheme = None if provider.special is not None else scheme_of(provider, request)
    if scheme is not None:
        if found := list(_time_unit(tries, scheme, secrets, request)):
            return found
        if _unreadable_time(scheme, request):
            return [Finding("time_unreadable")]
        if found := list(_clock(tries, scheme, secrets, request)):
            return found
    # From here on the time does not matter: the one mistake that is looked for is another.
    timeless = replace(provider, schemes=tuple(_any_time(each) for each in provider.schemes))
    found += _others(tries, timeless, others[:_LIKELY_OTHERS], request)
    if scheme is not None:
        found += _spelling(tries, _any_time(scheme), secrets, request)
    found += _secrets(tries, timeless, secrets, request)
    found += _bodies(tries, timeless, secrets, request)
    found += _urls(tries, timeless, secrets, request)
    if not found:
        found += _others(tries, timeless, others[_LIKELY_OTHERS:], request)
    return list(dict.fromkeys(found))


def _absent(provider: Provider, headers: Headers, table: Sequence[Provider]) -> Iterator[Finding]:
    own = headers_of(provider.schemes)
    if not own:
        return
    counts = [len(values_of(headers, name)) for name in own]
    if max(counts) > 1:
        yield Finding("header_twice")
    elif not any(any(values_of(headers, name)) for name in own):
        for other in table:
            if any(values_of(headers, name) for name in headers_of(other.schemes) - own):
                yield Finding("other_provider", other.name)
                break
        yield Finding("header_missing")


def _stamp(scheme: Scheme, request: Request) -> bytes | None:
    if scheme.stamp is None:
        return None
    items = [
        item
        for source in scheme.sources
        if isinstance(source, Header)
        for value in values_of(request.headers, source.name)
        for item in (value.split(scheme.separator.encode()) if scheme.separator else [value])
    ]
    return stamp_of(scheme.stamp, request, items)


def _unreadable_time(scheme: Scheme, request: Request) -> bool:
    if scheme.stamp is None:
        return False
    written = _stamp(scheme, request)
    return written is None or seconds_of(written, scheme.stamp.unit) is None


def _time_unit(
    tries: Tries, scheme: Scheme, secrets: Sequence[bytes], request: Request
) -> Iterator[Finding]:
    """Try to read the time otherwise: there it has to be about now."""
    written = _stamp(scheme, request)
    if scheme.stamp is None or written is None:
        return
    for unit in Unit:
        stamp = replace(scheme.stamp, unit=unit)
        own = unit is scheme.stamp.unit or (unit is Unit.ISO and written.isdigit())
        if not own and tries.scheme(replace(scheme, stamp=stamp), secrets, request):
            yield Finding("time_unit", unit.value)


def _any_time(scheme: Scheme) -> Scheme:
    if scheme.stamp is None:
        return scheme
    return replace(scheme, stamp=replace(scheme.stamp, past=_ANY_TIME, future=_ANY_TIME))


def _clock(
    tries: Tries, scheme: Scheme, secrets: Sequence[bytes], request: Request
) -> Iterator[Finding]:
    written = _stamp(scheme, request)
    if scheme.stamp is None or written is None:
        return
    moment = seconds_of(written, scheme.stamp.unit)
    if moment is not None and tries.scheme(_any_time(scheme), secrets, request):
        yield Finding("clock_off", str(round(moment - tries.now)))


def _others(
    tries: Tries, provider: Provider, others: Sequence[OtherSecret], request: Request
) -> Iterator[Finding]:
    for other in others:
        if tries.provider(provider, [other.value], request):
            code = "other_hooks_secret" if other.endpoint_id else "expired_secret"
            yield Finding(code, other.endpoint_id)
            return


def _spelling(
    tries: Tries, scheme: Scheme, secrets: Sequence[bytes], request: Request
) -> Iterator[Finding]:
    """Try another prefix, encoding, algorithm and key."""
    names = headers_of([scheme])
    bare = replace(scheme, kinds=(replace(scheme.kinds[0], prefix=""),))
    for prefix in (*(kind.prefix for kind in scheme.kinds), *_PREFIXES):
        stripped = _rewritten(request, names, _without(prefix))
        if tries.scheme(bare, secrets, stripped) and not tries.scheme(scheme, secrets, request):
            bearer = prefix == "Bearer " and scheme.encoding is Encoding.PLAIN
            yield Finding("bearer" if bearer else "prefix")
            break
    lowered = _rewritten(request, names, lambda value: _keeping_prefix(value, scheme, bytes.lower))
    if scheme.encoding is Encoding.HEX and tries.scheme(scheme, secrets, lowered):
        yield Finding("encoding", "hex in upper case")
    padded = _rewritten(
        request, names, lambda value: _keeping_prefix(value, scheme, _standard_base64)
    )
    for encoding, sent in ((Encoding.HEX, request), (Encoding.BASE64, padded)):
        other = replace(scheme, encoding=encoding)
        if scheme.encoding is not Encoding.PLAIN and tries.scheme(other, secrets, sent):
            yield Finding("encoding", encoding.value)
    for kind in scheme.kinds:
        for algorithm in _HMACS if kind.algorithm in _HMACS else ():
            changed = replace(scheme, kinds=(replace(kind, algorithm=algorithm),))
            if algorithm is not kind.algorithm and tries.scheme(changed, secrets, request):
                yield Finding("algorithm", algorithm.value)
        for key in (Key.TEXT, Key.BASE64, Key.HEX):
            changed = replace(scheme, kinds=(replace(kind, key=key),))
            if key is not kind.key and tries.scheme(changed, secrets, request):
                yield Finding("secret_encoding", key.value)


def _without(prefix: str) -> Change:
    return lambda value: value.removeprefix(prefix.encode())


def _keeping_prefix(value: bytes, scheme: Scheme, change: Change) -> bytes:
    for kind in scheme.kinds:
        prefix = kind.prefix.encode()
        if value.startswith(prefix):
            return prefix + change(value[len(prefix) :])
    return value


def _standard_base64(text: bytes) -> bytes:
    bare = text.replace(b"-", b"+").replace(b"_", b"/").rstrip(b"=")
    return bare + b"=" * (-len(bare) % 4)


def _rewritten(request: Request, names: frozenset[str], change: Change) -> Request:
    return replace(
        request,
        headers=[
            (name, change(value) if name.decode("latin-1") in names else value)
            for name, value in request.headers
        ],
    )


def _secrets(
    tries: Tries, provider: Provider, secrets: Sequence[bytes], request: Request
) -> Iterator[Finding]:
    spellings = [
        spelling
        for secret in secrets
        for spelling in (secret.strip(), secret + b"\n", secret + b"\r\n", secret + b" ")
        if spelling != secret
    ]
    if tries.provider(provider, spellings, request):
        yield Finding("newline_in_secret")


def _bodies(
    tries: Tries, provider: Provider, secrets: Sequence[bytes], request: Request
) -> Iterator[Finding]:
    for code, detail, body in variants(request):
        changed = replace(request, body=body)
        if body != request.body and tries.provider(provider, secrets, changed):
            yield Finding(code, detail)
            return


def _urls(
    tries: Tries, provider: Provider, secrets: Sequence[bytes], request: Request
) -> Iterator[Finding]:
    scheme, _, rest = request.url.partition("://")
    if not rest or tries.provider(provider, secrets, request):
        return
    other = "http" if scheme == "https" else "https"
    for name, url in (
        (f"with {other}", f"{other}://{rest}"),
        ("with a slash at its end", f"{request.url}/"),
        ("without its query", request.url.partition("?")[0]),
    ):
        if url != request.url and tries.provider(provider, secrets, replace(request, url=url)):
            yield Finding("url", name)
            return
