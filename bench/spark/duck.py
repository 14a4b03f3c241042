"""The same algorithm on ranges in DuckDB, for comparison: what the sweeps cost in an engine without a JVM.

Edges +1 and -1, running sums, segments, as `spark.ranges` does it: over the tags of each session (sent,
confirmed, placed) and over the ids of each queue and epoch (enqueued, confirmed, dequeued, acked, received,
present). Confirms get to ids by a range join of placed runs with the islands of confirmed tags. It answers
with totals and with what is lost, unplaced or received twice; it judges neither the ledgers themselves, nor
order, replication, transactions, quarantine or clocks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

FORMS = ("parquet", "jsonl")
READERS = {
    "parquet": "read_parquet({})",
    "jsonl": "read_json({}, format='newline_delimited', columns={{v: 'BIGINT', writer: 'VARCHAR', "
    "incarnation: 'BIGINT', wseq: 'BIGINT', ts_us: 'BIGINT', view: 'BIGINT', kind: 'VARCHAR', "
    "queue: 'VARCHAR', epoch: 'BIGINT', first: 'BIGINT', last: 'BIGINT', pfirst: 'BIGINT', "
    "n: 'BIGINT', reason: 'VARCHAR', prod: 'VARCHAR', name: 'VARCHAR', peer: 'VARCHAR'}})",
}

SWEEPS = """
create temp table tags as
with edges as (
    select prod, unnest([first, last + 1]) as edge, unnest([sent, -sent]) as sent,
        unnest([confirmed, -confirmed]) as confirmed, unnest([placed, -placed]) as placed
    from (
        select prod, first, last, (kind = 'sent')::int as sent, (kind = 'confirmed')::int as confirmed,
            0 as placed
        from records where kind in ('sent', 'confirmed')
        union all
        select prod, pfirst, pfirst + last - first, 0, 0, 1 from records
        where kind in ('enqueue', 'backup_enqueue') and prod is not null
    )
), points as (
    select prod, edge, sum(sent) as sent, sum(confirmed) as confirmed, sum(placed) as placed
    from edges group by all
)
select prod, edge as first, lead(edge) over w - 1 as last, sum(sent) over w as sent,
    sum(confirmed) over w as confirmed, sum(placed) over w as placed
from points window w as (partition by prod order by edge);

create temp table sure as
with marked as (
    select prod, first, last,
        coalesce(first > max(last) over (partition by prod order by first
            rows between unbounded preceding and 1 preceding) + 1, true)::int as begins
    from tags where confirmed > 0 and last is not null
), numbered as (select *, sum(begins) over (partition by prod order by first) as island from marked)
select prod, min(first) as first, max(last) as last from numbered group by prod, island;

create temp table placed as
select r.queue, r.epoch, greatest(r.pfirst, s.first) - r.pfirst + r.first as first,
    least(r.pfirst + r.last - r.first, s.last) - r.pfirst + r.first as last
from records r join sure s on r.prod = s.prod and s.first <= r.pfirst + r.last - r.first
where r.kind in ('enqueue', 'backup_enqueue') and s.last >= r.pfirst;

create temp table ids as
with ranges as (
    select queue, epoch, first, last, (kind in ('enqueue', 'backup_enqueue'))::int as put, 0 as confirmed,
        (kind in ('dequeue', 'backup_dequeue', 'acked', 'present'))::int as fate,
        (kind = 'received' and reason is null)::int as fresh
    from records where kind in ('enqueue', 'backup_enqueue', 'dequeue', 'backup_dequeue', 'acked', 'present',
        'received')
    union all
    select queue, epoch, first, last, 0, 1, 0, 0 from placed
), edges as (
    select queue, epoch, unnest([first, last + 1]) as edge, unnest([put, -put]) as put,
        unnest([confirmed, -confirmed]) as confirmed, unnest([fate, -fate]) as fate,
        unnest([fresh, -fresh]) as fresh
    from ranges
), points as (
    select queue, epoch, edge, sum(put) as put, sum(confirmed) as confirmed, sum(fate) as fate,
        sum(fresh) as fresh
    from edges group by all
)
select queue, epoch, edge as first, lead(edge) over w - 1 as last, sum(put) over w as put,
    sum(confirmed) over w as confirmed, sum(fate) over w as fate, sum(fresh) over w as fresh
from points window w as (partition by queue, epoch order by edge);
"""

TOTALS = """
select
    (select sum(last - first + 1) from tags where sent > 0) as sends,
    (select sum(last - first + 1) from tags where confirmed > 0 and placed = 0) as unplaced,
    (select sum(last - first + 1) from ids where put > 0) as enqueued,
    (select sum(last - first + 1) from ids where confirmed > 0) as confirmed_ids,
    (select sum(last - first + 1) from ids where confirmed > 0 and fate = 0) as lost,
    (select sum(last - first + 1) from ids where fresh > 1) as doubled
"""


def reconcile(folder: Path, scratch: Path, memory: str = "8GB", threads: int = 2) -> dict[str, Any]:
    """Totals over the ledgers below `folder`; what does not fit into `memory` goes to `scratch`."""
    form = "parquet" if any(folder.glob("*.ledger.parquet")) else "jsonl"
    files = READERS[form].format(f"'{folder}/*.ledger.{form}'")
    with duckdb.connect() as database:
        database.execute(
            f"set memory_limit = '{memory}'; set threads = {threads}; set preserve_insertion_order = false"
        )
        database.execute(f"set temp_directory = '{scratch}'")
        database.execute(f"create view records as select * from {files}")
        for statement in SWEEPS.split(";\n"):
            if statement.strip():
                database.execute(statement)
        row = database.execute(TOTALS).fetchone() or ()
        names = [column[0] for column in database.description or ()]
    return {name: int(value or 0) for name, value in zip(names, row, strict=True)}
