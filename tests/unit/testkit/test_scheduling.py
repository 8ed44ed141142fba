"""Which tests share a worker."""

from __future__ import annotations

import pytest

from reveille_testkit.scheduling import scope_of


@pytest.mark.parametrize(
    ("nodeid", "scope"),
    [
        ("tests/e2e/test_running_traces.py::test_one", "stack running"),
        ("tests/e2e/test_running_bad_input.py::TestHooks::test_one[a/b]", "stack running"),
        ("tests/e2e/test_ingress_gateway.py::test_one[x]", "stack ingress"),
        ("tests/unit/cron/test_zones.py::test_one[a/b]",) * 2,
        ("tests/e2e_like/test_a_b.py::test_one",) * 2,
    ],
)
def test_a_stack_is_for_one_worker_and_other_tests_are_free(nodeid: str, scope: str) -> None:
    assert scope_of(nodeid) == scope
