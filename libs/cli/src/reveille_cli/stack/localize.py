"""Turns what a compose file says about its own network and folders into what holds here.

A value keeps its shape; only these tokens change: `service:port`, `0.0.0.0:port`, `127.0.0.1:port`
and `localhost:port`, the address in a URL of the database, a secret's path, a volume's path.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from reveille_cli.stack.compose import SECRETS_ROOT, Compose, Service
from reveille_cli.stack.datadir import DataDir
from reveille_cli.stack.errors import ComposeInvalid, DatabaseUrlInvalid
from reveille_cli.stack.ports import LOOPBACK, PortMap

_ADDRESS = re.compile(r"(?<![\w.-])([A-Za-z0-9][\w.-]*):(\d{1,5})(?![\w.:])")
_ANY, _LOCAL = "0.0.0.0", {LOOPBACK, "localhost"}  # noqa: S104 - recognised, never bound
_SCHEMES = {"postgres", "postgresql"}


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """The server that stands in for the compose file's own, and its administrator."""

    host: str
    port: int
    name: str
    user: str
    password_file: Path
    options: Mapping[str, str]

    @classmethod
    def parse(cls, url: str, password_file: Path) -> tuple[DatabaseAddress, str]:
        """Split an administrator's URL into the address and the password it holds."""
        try:
            parts = urlsplit(url)
            port = parts.port or 5432
        except ValueError as error:
            raise DatabaseUrlInvalid(f"the database URL cannot be read: {error}") from error
        if parts.scheme not in _SCHEMES or not parts.hostname or not parts.username:
            raise DatabaseUrlInvalid(
                "the database URL must look like postgresql://user@host:port/database"
            )
        address = cls(
            host=parts.hostname,
            port=port,
            name=unquote(parts.path.strip("/")) or "reveille",
            user=unquote(parts.username),
            password_file=password_file,
            options=dict(parse_qsl(parts.query)),
        )
        return address, unquote(parts.password or "")

    @property
    def authority(self) -> str:
        """Return host:port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def url(self, user: str) -> str:
        """Return what a client connects to; the password stays in its file."""
        options = f"?{urlencode(self.options)}" if self.options else ""
        return f"postgresql://{quote(user, safe='')}@{self.authority}/{quote(self.name)}{options}"

    @property
    def public_url(self) -> str:
        """Return where the database is."""
        return f"postgresql://{self.authority}/{quote(self.name)}"


class Localizer:
    """Rewrites values for one replica of one service after the other."""

    def __init__(
        self,
        compose: Compose,
        ports: PortMap,
        data_dir: DataDir,
        database: DatabaseAddress | None,
    ) -> None:
        self._compose = compose
        self._ports = ports
        self._data_dir = data_dir
        self._database = database

    def value(self, text: str, service: Service, replica: int) -> str:
        """Return a setting or a word of a command as this machine needs it."""
        url = self._database_url(text)
        if url is not None:
            return url
        text = self._paths(text, service)
        return _ADDRESS.sub(lambda match: self._address(match, service, replica), text)

    def _address(self, match: re.Match[str], service: Service, replica: int) -> str:
        host, port = match.group(1), int(match.group(2))
        if host == _ANY:
            own = self._ports.of(service.name, replica, port)
            return f"{LOOPBACK}:{own or port}"
        if host in _LOCAL:
            own = self._ports.of(service.name, replica, port) or self._ports.published.get(port)
            return f"{host}:{own}" if own else match.group()
        target = self._compose.services.get(host)
        if target is None:
            return match.group()
        if target.is_database:
            return self._database.authority if self._database else match.group()
        # Every replica is equal, and clients of a scaled service are given the first.
        assigned = self._ports.of(host, 1, port)
        if assigned is None:
            raise ComposeInvalid(
                f"{service.name} calls {host}:{port}, where {host} does not listen"
            )
        return f"{LOOPBACK}:{assigned}"

    def _paths(self, text: str, service: Service) -> str:
        folders = {path: file.resolve() for path, file in service.secrets.items()}
        if self._database is not None:
            for path, file in service.secrets.items():
                if file.name == _admin_password_name(self._compose):
                    folders[path] = self._database.password_file
        parents = {file.parent for file in service.secrets.values()}
        if len(parents) == 1:
            folders[SECRETS_ROOT] = parents.pop()
        for target, source in service.volumes.items():
            named = not source.startswith((".", "/", "~"))
            folders[target] = (
                self._data_dir.volume(source) if named else self._compose.path.parent / source
            )
        for path in sorted(folders, key=len, reverse=True):
            text = _with_path(text, path, str(folders[path]))
        return text

    def _database_url(self, text: str) -> str | None:
        database, service = self._database, self._compose.database
        if database is None or service is None or text.partition("://")[0] not in _SCHEMES:
            return None
        parts = urlsplit(text)
        if parts.hostname != service.name:
            return None
        user = unquote(parts.username or "")
        administers = user == service.environment.get("POSTGRES_USER", "postgres")
        return database.url(database.user if administers else user)


def _with_path(text: str, path: str, here: str) -> str:
    return re.sub(rf"{re.escape(path)}(?![\w.-])", lambda _: here, text)


def _admin_password_name(compose: Compose) -> str:
    """Return the file name of the secret that holds the database administrator's password."""
    if compose.database is None:
        return ""
    mounted = compose.database.environment.get("POSTGRES_PASSWORD_FILE", "")
    file = compose.database.secrets.get(mounted)
    return file.name if file else ""
