"""Live progress of a crawl that stands still: nothing stays unsent for longer than a heartbeat."""

from typing import Any

from tests.support.database import Database
from tests.support.queue import checkpoint, claim_one, enqueue, found, heartbeat


def progress_messages(database: Database) -> list[dict[str, Any]]:
    rows = database.query(
        "select payload from realtime.messages where event = 'progress' order by inserted_at",
        role='supabase_admin',
    )
    return [row['payload'] for row in rows]


def let_a_second_pass(database: Database) -> None:
    database.query(
        'update silkline.states'
        " set progress_sent_at = progress_sent_at - interval '1 second' where seq > 0"
    )


def test_a_heartbeat_sends_the_progress_that_the_last_checkpoint_did_not(
    database: Database,
) -> None:
    job_id = enqueue(database)
    lease = claim_one(database)
    checkpoint(database, lease.token, 1, discovered=[found(1)])
    checkpoint(database, lease.token, 2, discovered=[found(2)])
    assert [message['pages_pending'] for message in progress_messages(database)] == [1]

    assert heartbeat(database, lease) == 'continue'
    assert len(progress_messages(database)) == 1, 'less than a second has passed'
    let_a_second_pass(database)
    assert heartbeat(database, lease) == 'continue'
    heartbeat(database, lease)

    first, second = progress_messages(database)
    assert (second['job_id'], second['pages_pending']) == (str(job_id), 2)
    assert second['seq'] > first['seq']
