"""`reveille demo`: a stack of its own, the main job on it, and a report that is also a test."""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import typer
from rich.console import Console

from reveille_cli.connection import Client
from reveille_cli.demo.checks import Check, check_story
from reveille_cli.demo.play import Play
from reveille_cli.demo.progress import Progress
from reveille_cli.demo.report import document, report_checks, report_story
from reveille_cli.demo.stage import Builder, Examples, colleague
from reveille_cli.demo.traced import check_traces
from reveille_cli.exits import ExitCode
from reveille_cli.failures import Failure, reporting
from reveille_cli.options import DEFAULT_OUTPUT, OutputOption
from reveille_cli.printer import Printer
from reveille_cli.stack.compose import find_compose_file
from reveille_cli.stack.datadir import DataDir
from reveille_cli.stack.supervisor import StackOptions, Supervisor
from reveille_cli.stackview import ProgressView
from reveille_cli.terminal import PlainConsole

_PREFIX = "reveille-demo-"


def demo(output: OutputOption = DEFAULT_OUTPUT) -> None:
    """Run the main job on real parts: a GitHub webhook and a cron schedule each wake an agent.

    Starts a stack of its own on free ports in a temporary directory, and removes both. Takes up to
    a minute and a half, since a cron schedule fires at a full minute. Exits with 0 only if
    everything it shows was checked and held; otherwise the directory stays, with every log.
    """
    messages = PlainConsole(stderr=True)
    with reporting(output):
        compose_file = find_compose_file(Path.cwd())
        examples = Examples.beside(compose_file)
        printer, started = Printer(output), time.monotonic()
        with _own_directory(messages) as folder, _running(compose_file, folder, messages) as place:
            checks = _perform(place, examples, Progress(messages), printer)
            broken = [check.promise for check in checks if not check.kept]
            if broken:
                for promise in broken:
                    printer.note(f"did not hold: {promise}")
                raise typer.Exit(ExitCode.FAILED)
        printer.note(f"All {len(checks)} checks held, in {time.monotonic() - started:.0f} s.")


def _perform(
    place: DataDir, examples: Examples, progress: Progress, printer: Printer
) -> list[Check]:
    """Play on a running stack, report, and return what was checked."""
    with Client(place.root, {}) as owner:
        builder = Builder(owner, progress, examples)
        progress.step("creating a workspace, two agents, three rules and their triggers")
        workspace_id = builder.workspace()
        with colleague(place, workspace_id) as publisher:
            stage = builder.stage(workspace_id, publisher)
        story = Play(owner, stage, examples, progress).perform()
        checks = [*check_story(story), *check_traces(story)]
        if printer.as_json:
            printer.document(document(story, checks))
        else:
            report_story(story, printer)
            report_checks(checks, printer)
    return checks


@contextmanager
def _running(compose_file: Path, folder: Path, messages: Console) -> Iterator[DataDir]:
    """Run a stack while the block lasts; Ctrl-C and SIGTERM end both."""
    with ProgressView(messages) as view:
        supervisor = Supervisor(
            StackOptions(
                compose_file=compose_file, data_dir=folder, free_ports=True, durable=False
            ),
            view,
        )
        asked: list[int] = []

        def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 (the interface)
            # Once ends the demo in the orderly way, once more ends the patience with the stack.
            asked.append(number)
            if len(asked) > 1:
                supervisor.request_stop()
                return
            raise KeyboardInterrupt

        before = {each: signal.signal(each, stop) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            with supervisor:
                view.settle()
                missing = supervisor.not_ready()
                if missing:
                    raise Failure(
                        "start_failed",
                        "not ready: "
                        + ", ".join(f"{each.name} ({each.state})" for each in missing),
                        ExitCode.FAILED,
                    )
                yield supervisor.data_dir
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def _own_directory(messages: Console) -> Iterator[Path]:
    """Lend a new directory: removed in the end, unless something went wrong."""
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    try:
        yield folder
    except KeyboardInterrupt:
        shutil.rmtree(folder)
        messages.print("Stopped; nothing is left behind.")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except BaseException:
        messages.print(
            f"Everything the demo saw stays in {folder}: logs/ has the output of each service,"
            " otlp/ the traces.",
            soft_wrap=True,
        )
        raise
    shutil.rmtree(folder)
