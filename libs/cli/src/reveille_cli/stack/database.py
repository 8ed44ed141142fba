"""The database behind a local stack: the embedded server, or one that the operator names."""

from __future__ import annotations

from reveille_cli.stack.compose import Service
from reveille_cli.stack.datadir import DataDir, write_private
from reveille_cli.stack.localize import DatabaseAddress
from reveille_cli.stack.ports import LOOPBACK
from reveille_cli.stack.postgres import SUPERUSER, EmbeddedPostgres, PostgresSettings

_EXTERNAL_PASSWORD = "external_database.password"  # noqa: S105 - the name of a file


class EmbeddedDatabase:
    """Our own server in the data directory; it also ends when its owner is gone."""

    def __init__(
        self, service: Service, data_dir: DataDir, *, durable: bool, owner_pid: int
    ) -> None:
        self._name = service.environment.get("POSTGRES_DB", SUPERUSER)
        self._exists = data_dir.postgres.exists()
        self._server = EmbeddedPostgres(
            data_dir.postgres, settings=PostgresSettings(durable=durable, owner_pid=owner_pid)
        )
        self.address: DatabaseAddress | None = None

    @property
    def intention(self) -> str:
        """Say what `start` is about to do."""
        verb = "starting" if self._exists else "creating"
        return f"{verb} the embedded PostgreSQL"

    farewell = "stopping the embedded PostgreSQL"

    def start(self) -> None:
        """Bring it up."""
        self._server.start()
        self.address = DatabaseAddress(
            host=LOOPBACK,
            port=self._server.port,
            name=self._name,
            user=SUPERUSER,
            password_file=self._server.password_file,
            options={},
        )

    def stop(self) -> None:
        """Shut it down fast."""
        self._server.stop()


class NamedDatabase:
    """A server that the operator names by an administrator's URL; never ours to stop."""

    intention = "using the PostgreSQL of REVEILLE_DATABASE_URL"
    farewell = ""

    def __init__(self, url: str, data_dir: DataDir) -> None:
        self._url = url
        self._password_file = data_dir.keys / _EXTERNAL_PASSWORD
        self.address: DatabaseAddress | None = None

    def start(self) -> None:
        """Take the URL apart: its password goes into a file, where services expect one."""
        self.address, password = DatabaseAddress.parse(self._url, self._password_file)
        write_private(self._password_file, password.encode())

    def stop(self) -> None:
        """Leave it alone."""


def stop_left_over_server(data_dir: DataDir) -> bool:
    """Stop an embedded server whose supervisor was killed; False when there is none."""
    server = EmbeddedPostgres(data_dir.postgres)
    if server.running_pid() is None:
        return False
    server.stop()
    return True
