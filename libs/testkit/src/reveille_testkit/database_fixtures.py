"""Fixtures over a real PostgreSQL: a database per test, from one migrated template."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from reveille_testkit.cluster import SessionCluster, TestCluster
from reveille_testkit.database import TestDatabase, temporary_database

session_cluster = pytest.StashKey[SessionCluster]()


@pytest.fixture(scope="session")
def postgres_cluster(pytestconfig: pytest.Config) -> TestCluster:
    """The session's server, with every role, and templates at head."""
    return pytestconfig.stash[session_cluster].get()


@pytest_asyncio.fixture
async def database(postgres_cluster: TestCluster) -> AsyncIterator[TestDatabase]:
    """A database of this test alone, with every service's schema at head."""
    async with temporary_database(postgres_cluster, postgres_cluster.template) as made:
        yield made


@pytest.fixture
def migrated_database(database: TestDatabase) -> TestDatabase:
    """The same, for tests that read the catalogue of what the migrations made."""
    return database


@pytest_asyncio.fixture
async def scratch(postgres_cluster: TestCluster) -> AsyncIterator[TestDatabase]:
    """A database with the schema `scratch` alone: `ddl` adds what a runtime test needs."""
    async with temporary_database(postgres_cluster, postgres_cluster.scratch_template) as made:
        yield made


@pytest_asyncio.fixture
async def empty_database(postgres_cluster: TestCluster) -> AsyncIterator[TestDatabase]:
    """A database in which nothing has been made, for tests of the migrations themselves."""
    async with temporary_database(postgres_cluster, None) as made:
        yield made
