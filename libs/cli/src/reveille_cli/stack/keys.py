"""The secrets of a local stack: made once, read from files by the services that need them.

File names are those that docker-compose.yml mounts: a data directory made here also serves Docker.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from reveille_cli.stack.datadir import DataDir, write_private
from reveille_cli.stack.errors import DataDirUnusable
from reveille_runtime.access import CallerKind
from reveille_runtime.crypto import generate_key as generate_sealing_key
from reveille_runtime.tokens import (
    OPERATOR_ISSUER,
    KeyFileError,
    TokenMinter,
    generate_key,
    save_trusted_keys,
    trusted_key_of,
)

ISSUERS = (OPERATOR_ISSUER, "scheduler", "autopilot", "webhook-gateway", "heartbeat")
SEALING_KEYS = ("autopilot_sealing.key", "webhook_sealing.key")
ADMIN_PASSWORD = "postgres_password"  # noqa: S105 - the name of a file
ROLE_PASSWORDS = (
    "reveille_migrator",
    "reveille_scheduler_app",
    "reveille_autopilot_app",
    "reveille_webhook_app",
    "reveille_heartbeat_app",
)
TRUSTED_KEYS = "trusted_keys.json"
LOCAL_USER = "local"


def make_secrets(data_dir: DataDir) -> None:
    """Create every secret that is missing; those that exist stay, and tighten to mode 0600."""
    folder = data_dir.keys
    try:
        for issuer in ISSUERS:
            if not _kept(key_file(data_dir, issuer)):
                generate_key(key_file(data_dir, issuer), issuer)
        for name in SEALING_KEYS:
            if not _kept(folder / name):
                write_private(folder / name, f"{generate_sealing_key()}\n".encode("ascii"))
        for name in (ADMIN_PASSWORD, *ROLE_PASSWORDS):
            if not _kept(folder / name):
                write_private(folder / name, secrets.token_urlsafe(24).encode())
        # Public halves are derived again each time, so the file cannot fall behind the keys.
        save_trusted_keys(
            folder / TRUSTED_KEYS,
            (trusted_key_of(key_file(data_dir, issuer), issuer) for issuer in ISSUERS),
        )
        (folder / TRUSTED_KEYS).chmod(0o600)
    except (OSError, KeyFileError) as error:
        raise DataDirUnusable(f"cannot make the keys in {folder}: {error}") from error


def key_file(data_dir: DataDir, issuer: str) -> Path:
    """Name the private key of one issuer."""
    return data_dir.keys / f"{issuer}.pem"


def password(data_dir: DataDir, name: str) -> str:
    """Read one database password; its file is named as the role."""
    return (data_dir.keys / name).read_text(encoding="utf-8").strip()


def local_operator_token(data_dir: Path, *, lifetime: float = 3600.0) -> str:
    """Mint a token for the person at this machine: the user `local`, as operator."""
    minter = TokenMinter(key_file(DataDir.at(data_dir), OPERATOR_ISSUER), OPERATOR_ISSUER)
    return minter.mint(CallerKind.USER, LOCAL_USER, lifetime=lifetime, operator=True)


def _kept(path: Path) -> bool:
    if not path.exists() or path.stat().st_size == 0:
        path.unlink(missing_ok=True)
        return False
    path.chmod(0o600)
    return True
