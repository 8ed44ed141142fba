"""Lists follow their pages."""

from __future__ import annotations

from reveille.webhook.v1 import delivery_service_pb2 as pb
from reveille_cli.apis import DELIVERIES

from .conftest import Answer, Desk

LINE = ("deliveries", "list", "-w", "0197f3a0-0000-7000-8000-000000000001")


def page(first: int, count: int, token: str = "") -> Answer:
    deliveries = [pb.Delivery(delivery_id=f"d{first + index}") for index in range(count)]
    reply = pb.ListDeliveriesResponse(deliveries=deliveries, next_page_token=token)
    return Answer(DELIVERIES, "ListDeliveries", reply)


def test_pages_are_joined_until_the_limit(desk: Desk) -> None:
    answers = [page(0, 200, "p2"), page(200, 50, "p3")]

    outcome = desk.run(*LINE, "--limit", "250", "-o", "json", answers=answers)

    assert [(each.page_size, each.page_token) for each in outcome.requests] == [
        (200, ""),
        (50, "p2"),
    ]
    assert len(outcome.json["deliveries"]) == 250
    assert outcome.json["next_page_token"] == "p3"


def test_zero_is_all(desk: Desk) -> None:
    outcome = desk.run(*LINE, "-n", "0", "-o", "json", answers=[page(0, 200, "p2"), page(200, 1)])

    assert len(outcome.json["deliveries"]) == 201
    assert outcome.json["next_page_token"] == ""


def test_a_short_page_is_not_the_last_one(desk: Desk) -> None:
    answers = [page(0, 3, "p2"), page(3, 2)]

    outcome = desk.run(*LINE, "-n", "10", "-o", "json", answers=answers)

    assert [each.page_size for each in outcome.requests] == [10, 7]
    assert len(outcome.json["deliveries"]) == 5


def test_going_on_after_an_earlier_list(desk: Desk) -> None:
    answers = [page(0, 2, "p9")]

    outcome = desk.run(*LINE, "-n", "2", "--page-token", "p8", answers=answers)

    assert outcome.request.page_token == "p8"
    assert len(outcome.out.splitlines()) == 3
    assert outcome.err == "There are more: --page-token p9, or --limit 0 for all.\n"


def test_a_negative_limit_is_refused(desk: Desk) -> None:
    outcome = desk.run(*LINE, "--limit", "-1", "-o", "json")

    assert outcome.exit_code == 2
    assert outcome.json["error"]["field"] == "limit"
