"""What every service reads from its environment, checked once at start, all errors together."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal, TypeVar
from urllib.parse import parse_qsl, urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FilePath, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

ENV_PREFIX = "REVEILLE_"

LogLevel = Literal["debug", "info", "warning", "error"]


def _database_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in {"postgresql", "postgres"} or not parts.hostname:
        raise ValueError("must look like postgresql://role@host:port/database")
    if not parts.username or not parts.path.strip("/"):
        raise ValueError("must name a role and a database: postgresql://role@host:port/database")
    if parts.password or "password" in dict(parse_qsl(parts.query)):
        raise ValueError("must not hold a password: put it into a file and name that file")
    return value


def _listen_address(value: str) -> str:
    host, separator, port = value.rpartition(":")
    if not separator or not host or not port.isdigit() or int(port) > 65535:
        raise ValueError("must be host:port")
    return value


def _public_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("must look like https://hooks.example.com")
    if parts.query or parts.fragment or parts.username:
        raise ValueError("must be an address alone, without a query or a user")
    return value.rstrip("/")


DatabaseUrl = Annotated[str, AfterValidator(_database_url)]
ListenAddress = Annotated[str, AfterValidator(_listen_address)]
PublicUrl = Annotated[str, AfterValidator(_public_url)]


class DatabaseSettings(BaseModel):
    """How one role reaches one database."""

    model_config = ConfigDict(frozen=True)

    url: DatabaseUrl
    password_file: Path | None = None
    pool_max: int = Field(default=10, ge=1)
    statement_cache: int = Field(default=100, ge=0)
    acquire_timeout: float = Field(default=10.0, gt=0)
    # A little longer than the server itself lets a statement of ours take: what lasts longer
    # waits for a server that is gone.
    command_timeout: float = Field(default=35.0, gt=0)
    application_name: str = "reveille"
    clock_offset: float = 0.0

    def password(self) -> str:
        """Read the password, at each connect: a rotated secret needs no restart."""
        if self.password_file is None:
            return ""
        return self.password_file.read_text(encoding="utf-8").strip()


class ServiceSettings(BaseSettings):
    """The settings that all services share; each service subclasses and names itself."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, frozen=True, extra="ignore")

    service_name: ClassVar[str] = "reveille"

    listen: ListenAddress = "127.0.0.1:50051"
    database_url: DatabaseUrl
    database_password_file: FilePath | None = None
    database_pool_max: int = Field(default=10, ge=1)
    database_statement_cache: int = Field(
        default=100, ge=0, description="0 behind a pooler in transaction mode"
    )
    database_listen_url: DatabaseUrl | None = Field(
        default=None,
        description="where hints are listened for: the server, when database_url is a pooler",
    )
    hints: bool = Field(
        default=True, description="whether news are told by NOTIFY; without, all loops just poll"
    )
    trusted_keys_file: FilePath
    service_key_file: FilePath
    log_level: LogLevel = "info"
    grpc_reflection: bool = False
    drain_pause: float = Field(
        default=0.0, ge=0, description="seconds between NOT_SERVING and the end, for balancers"
    )
    drain_grace: float = Field(
        default=10.0, ge=0, description="seconds that each stage of a stop may take"
    )
    otlp_dir: Path | None = Field(
        default=None, description="where spans are also written, as OTLP JSON lines"
    )
    test_clock_offset: float = Field(
        default=0.0, description="seconds added to the database's clock; for tests only"
    )

    @property
    def database(self) -> DatabaseSettings:
        """The part that `Database` needs."""
        return DatabaseSettings(
            url=self.database_url,
            password_file=self.database_password_file,
            pool_max=self.database_pool_max,
            statement_cache=self.database_statement_cache,
            application_name=f"reveille-{self.service_name}",
            clock_offset=self.test_clock_offset,
        )

    @property
    def listening(self) -> DatabaseSettings:
        """The part that `HintBus` needs: not behind a pooler, which would swallow every word."""
        url = self.database_listen_url or self.database_url
        return self.database.model_copy(update={"url": url})


S = TypeVar("S", bound=BaseSettings)


def describe_problems(error: ValidationError) -> str:
    """Name every setting that is wrong by its variable, one a line."""
    lines = []
    for problem in error.errors():
        name = "_".join(str(part) for part in problem["loc"][:1]).upper()
        message = problem["msg"].removeprefix("Value error, ")
        lines.append(f"{ENV_PREFIX}{name}: {message}" if name else message)
    return "\n".join(sorted(lines))


def redacted(settings: BaseSettings) -> dict[str, object]:
    """Show the settings in effect; secrets are SecretStr and stay starred."""
    shown: dict[str, object] = settings.model_dump(mode="json")
    return shown


def load_settings(settings_class: type[S], argv: Sequence[str] | None = None) -> S:
    """Read a process's environment: exit 2 with every problem, or 0 after `--print-config`."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    try:
        settings = settings_class()
    except ValidationError as error:
        sys.stderr.write(f"the configuration is not usable:\n{describe_problems(error)}\n")
        raise SystemExit(2) from None
    if "--print-config" in arguments:
        sys.stdout.write(json.dumps(redacted(settings), indent=2, sort_keys=True) + "\n")
        raise SystemExit(0)
    return settings
