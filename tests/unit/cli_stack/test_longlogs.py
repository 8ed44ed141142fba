"""Logs that grow too long are cut, and their processes go on writing."""

from __future__ import annotations

from pathlib import Path

from reveille_cli.stack.datadir import DataDir
from reveille_cli.stack.longlogs import cut_long_logs


def test_a_long_log_goes_to_the_file_behind_it_and_is_written_on(tmp_path: Path) -> None:
    data_dir = DataDir.at(tmp_path)
    data_dir.prepare()
    data_dir.postgres.mkdir()
    data_dir.log("autopilot").write_text("short\n")
    logs = (data_dir.log("scheduler"), data_dir.postgres_log)
    for log in logs:
        log.with_suffix(".log.1").write_text("the run before\n")
        with log.open("a") as process:
            process.write("many words\n")
            process.flush()

            cut_long_logs(data_dir, longest=8)

            process.write("more\n")
        assert log.read_text() == "more\n"
        assert log.with_suffix(".log.1").read_text() == "many words\n"
    assert data_dir.log("autopilot").read_text() == "short\n"
    assert not data_dir.log("autopilot").with_suffix(".log.1").exists()


def test_where_there_are_no_logs_none_is_cut(tmp_path: Path) -> None:
    cut_long_logs(DataDir.at(tmp_path), longest=0)
