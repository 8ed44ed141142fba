"""The stack that end-to-end tests use."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from reveille_cli.stack.process import ProcessState
from reveille_testkit.stack import StackNotReady, running_stack

from .conftest import Place


def test_processes_can_be_stopped_looked_at_and_started(two: Place, tmp_path: Path) -> None:
    with running_stack(
        tmp_path / "data",
        compose_file=two.compose_file,
        otlp_endpoint="http://127.0.0.1:1",
        environment={"*": {"ALL": "1"}, "back": {"ONE": "2"}},
    ) as stack:
        seen = two.settings_of("back")
        assert (seen["ALL"], seen["ONE"]) == ("1", "2")
        assert seen["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://127.0.0.1:1"
        assert "ONE" not in two.settings_of("front")

        assert stack.kill("back") == -signal.SIGKILL
        stack.start("back", {"REVEILLE_CRASH_POINT": "x"})
        assert two.settings_of("back")["REVEILLE_CRASH_POINT"] == "x"
        stack.pause("back")
        stack.resume("back")
        stack.restart("back")
        assert "REVEILLE_CRASH_POINT" not in two.settings_of("back")
        assert stack.log("back").count("serving") == 3

        stack.kill("back")
        with pytest.raises(StackNotReady, match="cannot go on"):
            stack.start("back", {"EXIT_CODE": "137"})
        stack.wait_crash("back")
        assert stack.status("back").state is ProcessState.EXITED


def test_a_service_that_does_not_come_up_fails_the_test_that_needs_it(two: Place) -> None:
    broken = {"back": {"EXIT_CODE": "4"}}

    with (
        pytest.raises(StackNotReady, match=r"(?s)back is exited:.*cannot go on"),
        running_stack(two.folder / "a", compose_file=two.compose_file, environment=broken),
    ):
        pytest.fail("it came up")

    with running_stack(
        two.folder / "b",
        compose_file=two.compose_file,
        environment=broken,
        expect_ready=lambda name: name != "back",
    ) as stack:
        assert stack.wait_exit("back") == 4
