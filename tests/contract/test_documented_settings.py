"""The settings that every service has: the page lists each of them, with its default."""

from __future__ import annotations

from pathlib import Path

import pytest

from reveille_autopilot.config import Settings as AutopilotSettings
from reveille_heartbeat.config import Settings as HeartbeatSettings
from reveille_runtime.config import ENV_PREFIX, ServiceSettings
from reveille_scheduler.config import Settings as SchedulerSettings
from reveille_webhook.config import Settings as WebhookSettings

PAGE = (Path(__file__).resolve().parents[2] / "docs/running.md").read_text("utf-8")
SERVICES = (SchedulerSettings, AutopilotSettings, WebhookSettings, HeartbeatSettings)
# Those whose default is each service's own, and what the page says of it.
_OWN = {
    "listen": "its own port on 127.0.0.1, 50051 to 50054",
    "database_pool_max": "10, heartbeat 12",
}


def defaults() -> dict[str, str]:
    """The page's column of defaults, by variable."""
    section = PAGE[PAGE.index("\n## Settings\n") :]
    table = section[section.index("| variable |") :].split("\n\n")[0].splitlines()[2:]
    rows = [line.strip("| ").split(" | ") for line in table]
    return {row[0].strip("`"): row[1] for row in rows}


def said(name: str) -> str:
    """Say a setting's default as the page does."""
    field = ServiceSettings.model_fields[name]
    if field.is_required():
        return "required"
    match field.default:
        case None:
            return "none"
        case bool():
            return str(field.default).lower()
        case float():
            return f"{field.default:g}"
        case _:
            return str(field.default)


def test_every_shared_setting_is_on_the_page_and_no_other() -> None:
    names = {f"{ENV_PREFIX}{name.upper()}" for name in ServiceSettings.model_fields}

    assert set(defaults()) == names


@pytest.mark.parametrize("name", ServiceSettings.model_fields)
def test_its_default_is_on_the_page(name: str) -> None:
    assert defaults()[f"{ENV_PREFIX}{name.upper()}"] == _OWN.get(name, said(name))


def test_what_a_service_has_of_its_own_is_what_the_page_says() -> None:
    ports = [each.model_fields["listen"].default for each in SERVICES]
    pools = {each.service_name: each.model_fields["database_pool_max"].default for each in SERVICES}
    differing = {
        name
        for each in SERVICES
        for name, field in ServiceSettings.model_fields.items()
        if each.model_fields[name].default != field.default
    }

    assert ports == [f"127.0.0.1:{port}" for port in range(50051, 50055)]
    assert pools.pop("heartbeat") == 12
    assert set(pools.values()) == {10}
    assert differing == set(_OWN)
