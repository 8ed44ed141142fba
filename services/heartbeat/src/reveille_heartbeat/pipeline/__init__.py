"""The way of an attempt: one module per stage, in one list."""

from __future__ import annotations

from reveille_heartbeat.pipeline.checkout import checkout
from reveille_heartbeat.pipeline.classify import classify
from reveille_heartbeat.pipeline.context import Stage, When
from reveille_heartbeat.pipeline.execute import execute
from reveille_heartbeat.pipeline.follow_up import follow_up
from reveille_heartbeat.pipeline.load import load
from reveille_heartbeat.pipeline.payload import payload
from reveille_heartbeat.pipeline.release import release
from reveille_heartbeat.pipeline.settle import settle

STAGES = (
    Stage("load", load, When.ALWAYS),
    Stage("checkout", checkout, When.OPEN),
    Stage("payload", payload, When.OPEN),
    Stage("execute", execute, When.OPEN),
    Stage("classify", classify, When.OPEN),
    Stage("settle", settle, When.OPEN),
    Stage("release", release, When.ENDED),
    Stage("follow_up", follow_up, When.ALWAYS),
)
