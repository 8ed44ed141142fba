"""The event feed: what happened in a service, told to other services without loss.

Rows are written in the business transaction (`append`) and ordered by (epoch, transaction id,
sequence). A producer serves them with `serve_watch`; a consumer follows with `FeedConsumer`. The
tables are those of `feed_ddl.sql`, which every producing schema's migration contains;
`cursors_ddl.sql` is the consumer's.
"""

from __future__ import annotations

from reveille_runtime.feed.consumer import CursorStore, FeedConsumer
from reveille_runtime.feed.cursor import Cursor, CursorExpired
from reveille_runtime.feed.log import FeedEvent, append, begin_epoch, make_and_tell, prune
from reveille_runtime.feed.reader import FeedPage, FeedReader, FeedTail, StoredEvent
from reveille_runtime.feed.serve import serve_watch

__all__ = [
    "Cursor",
    "CursorExpired",
    "CursorStore",
    "FeedConsumer",
    "FeedEvent",
    "FeedPage",
    "FeedReader",
    "FeedTail",
    "StoredEvent",
    "append",
    "begin_epoch",
    "make_and_tell",
    "prune",
    "serve_watch",
]
