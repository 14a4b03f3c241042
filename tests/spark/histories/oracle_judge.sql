-- Findings, one number per row: an id if `epoch` is set, otherwise a tag or a logical number of `prod`.
CREATE TABLE found (kind VARCHAR, queue VARCHAR, epoch BIGINT, prod VARCHAR, note VARCHAR, num BIGINT);

-- fates
INSERT INTO found SELECT 'lost', queue, epoch, NULL,
  CASE WHEN quarantined THEN 'quarantined' WHEN fresh + flagged > 0 THEN 'received' END, id
FROM known WHERE confirmed AND NOT ended;
INSERT INTO found SELECT 'unaccounted', queue, epoch, NULL, if(fresh + flagged > 0, 'received', NULL), id
FROM known WHERE NOT confirmed AND held AND NOT quarantined AND NOT ended;
INSERT INTO found SELECT 'never-published', queue, epoch, NULL,
  CASE WHEN quarantined THEN 'quarantined' WHEN top IS NULL OR id > top THEN 'beyond' ELSE 'received' END, id
FROM known LEFT JOIN (SELECT queue, epoch, max(id) AS top FROM put GROUP BY queue, epoch) USING (queue, epoch)
WHERE NOT seen AND fresh + flagged > 0;
INSERT INTO found SELECT 'duplicate-illegal', queue, epoch, NULL, NULL, id FROM known WHERE fresh > 1;
INSERT INTO found SELECT 'duplicate-redelivered', queue, epoch, NULL, NULL, id
FROM known WHERE fresh <= 1 AND fresh + flagged > 1;

-- publishing
INSERT INTO found SELECT 'unplaced', NULL, NULL, prod, NULL, tag
FROM outcome WHERE confirmed AND NOT placed AND NOT unrouted AND NOT returned;
INSERT INTO found SELECT CASE WHEN prod IN (SELECT prod FROM tag WHERE kind = 'sent') THEN 'unsent' ELSE 'unknown-producer' END,
  NULL, NULL, prod, NULL, tag
FROM outcome WHERE sent = 0 AND (confirmed OR placed);
INSERT INTO found SELECT 'reused', NULL, NULL, prod, NULL, tag FROM outcome WHERE sent > 1;

CREATE TABLE message AS
SELECT t.process AS stream, t.logical, count(*) AS sends, count(*) FILTER (o.confirmed) AS confirms,
  count(*) FILTER (NOT o.confirmed AND (o.nacked OR o.returned)) AS refusals
FROM tag t JOIN outcome o USING (prod, tag) WHERE t.kind = 'sent' GROUP BY t.process, t.logical;
INSERT INTO found SELECT 'in-doubt', NULL, NULL, stream, NULL, logical
FROM message WHERE confirms = 0 AND refusals = 0;
INSERT INTO found
SELECT if(any_value(m.confirms) > 1, 'duplicate-illegal', 'duplicate-in-doubt'), p.queue, NULL, m.stream, NULL, m.logical
FROM message m JOIN tag t ON t.process = m.stream AND t.logical = m.logical AND t.kind = 'sent'
JOIN put p ON p.prod = t.prod AND p.tag = t.tag
JOIN known k ON k.queue = p.queue AND k.epoch = p.epoch AND k.id = p.id
WHERE m.sends > 1 AND k.fresh + k.flagged > 0
GROUP BY m.stream, m.logical, p.queue HAVING count(DISTINCT (p.epoch, p.id)) > 1;

-- order
INSERT INTO found SELECT DISTINCT 'reordered', queue, epoch, NULL, NULL, id FROM (
  SELECT *, max(id) OVER (PARTITION BY process, queue, epoch ORDER BY wseq, id
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reach
  FROM fate WHERE kind = 'received' AND reason <> 'redelivered'
) JOIN known USING (queue, epoch, id) WHERE id <= reach AND fresh = 1;
CREATE TABLE given AS SELECT DISTINCT queue, epoch, id, prod, tag, writer FROM put
WHERE kind = 'enqueue' AND prod IS NOT NULL;
CREATE TABLE again AS SELECT * FROM (
  SELECT *, dense_rank() OVER (PARTITION BY queue, prod, tag ORDER BY epoch, id) AS place FROM given
) WHERE place > 1;
INSERT INTO found SELECT DISTINCT 'enqueued-twice', queue, epoch, prod, NULL, id FROM again;
INSERT INTO found SELECT DISTINCT 'reordered-enqueue', queue, epoch, prod, NULL, id FROM (
  SELECT *, max(tag) OVER (PARTITION BY writer, queue, epoch, prod ORDER BY id
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reach FROM given
) x WHERE tag <= reach AND NOT EXISTS (FROM again a WHERE (a.queue, a.epoch, a.id) = (x.queue, x.epoch, x.id));

-- numbers: the node knew an earlier id of the same number, and so did the primary after that one
INSERT INTO found
SELECT DISTINCT if(y.producer IN (SELECT name FROM rec WHERE kind = 'forgotten'), 'number-forgotten', 'number-doubled'),
  y.queue, y.epoch, NULL, y.producer, y.id
FROM put y JOIN put x USING (queue, producer, number, writer) JOIN known k ON (k.queue, k.epoch, k.id) = (x.queue, x.epoch, x.id)
WHERE y.kind = 'enqueue' AND (x.epoch, x.id) < (y.epoch, y.id) AND (x.inc, x.wseq) < (y.inc, y.wseq)
AND (x.process = y.process OR k.ended)
AND (x.epoch = y.epoch OR EXISTS (FROM put s WHERE (s.queue, s.epoch, s.id) = (x.queue, x.epoch, x.id)
  AND s.writer = (SELECT arg_min(o.writer, o.view) FROM owner o WHERE o.view > x.epoch)));

-- copies
INSERT INTO found SELECT 'copy-differs', queue, epoch, NULL, name, id FROM (
  SELECT name, queue, epoch, id, count(DISTINCT writer) AS held FROM fate WHERE kind = 'quiesce'
  GROUP BY name, queue, epoch, id
) JOIN (SELECT name, count(DISTINCT writer) AS nodes FROM rec WHERE kind = 'quiesce' GROUP BY name) USING (name)
WHERE held <> nodes;

-- early confirms: membership[view, backup] = unbroken positions begin..until in sync, and when the backup left
CREATE TABLE change AS
SELECT r.view, r.writer AS owner, r.ts, r.n, string_split(r.name, ',') AS names,
  row_number() OVER (PARTITION BY r.view ORDER BY r.inc, r.wseq) AS place
FROM rec r WHERE r.kind = 'insync' AND (r.view, r.writer) IN (SELECT (view, writer) FROM owner);
CREATE TABLE membership AS
WITH backup AS (
  SELECT DISTINCT c.view, c.owner, trim(b) AS backup FROM change c, unnest(c.names) AS u(b) WHERE trim(b) NOT IN ('', c.owner)
), state AS (
  SELECT b.*, c.place, c.n, c.ts, list_contains(list_transform(c.names, lambda x: trim(x)), b.backup) AS inside
  FROM backup b JOIN change c ON c.view = b.view
), turn AS (
  SELECT *, lag(inside, 1, false) OVER w AS before FROM state WINDOW w AS (PARTITION BY view, backup ORDER BY place)
), flip AS (
  SELECT *, lead(n) OVER w AS until, lead(ts) OVER w AS left_ts FROM turn WHERE inside <> before
  WINDOW w AS (PARTITION BY view, backup ORDER BY place)
)
SELECT view, owner, backup, n AS begin, coalesce(until, 9000000000) AS until, left_ts FROM flip WHERE inside;
CREATE TABLE acked AS
SELECT epoch AS view, peer AS backup, reason, unnest(generate_series(first, last)) AS n FROM rec WHERE kind = 'replicated';
CREATE TABLE on_disk AS
SELECT process, epoch AS view, unnest(generate_series(first, last)) AS n FROM rec WHERE kind = 'durable';
-- levels of confirms: positions begin..until, at which confirms of this owner did not wait for the disks of backups, nor for its own
CREATE TABLE level AS
SELECT view, writer AS owner, n, list_position(['all-disks', 'primary-disk', 'all-memory'], name) - 1 AS level,
  row_number() OVER (PARTITION BY view, writer ORDER BY inc, wseq) AS place
FROM rec WHERE kind = 'confirm_level';
CREATE TABLE no_wait AS
SELECT own, w.view, w.owner, w.n AS begin, coalesce((SELECT arg_min(s.n, s.place) FROM level s
  WHERE s.view = w.view AND s.owner = w.owner AND s.place > w.place AND s.level < if(own, 2, 1)), 9000000000) AS until
FROM level w, (SELECT unnest([false, true]) AS own) WHERE w.level >= if(own, 2, 1);
CREATE TABLE wants AS
SELECT 'copy' AS what UNION ALL SELECT 'disk';
CREATE TABLE due AS
SELECT DISTINCT what, c.queue, c.epoch, c.id, c.prod, c.tag, c.view, c.n, m.owner, m.backup, m.begin, m.until, m.left_ts
FROM conf c JOIN membership m ON m.view = c.view AND c.n >= m.begin AND c.n < m.until, wants
WHERE c.kind = 'enqueue' AND (what = 'copy' OR (c.durable = 1 AND c.process IN (SELECT process FROM on_disk)
  AND NOT EXISTS (FROM no_wait l WHERE NOT l.own AND l.view = c.view AND l.owner = m.owner AND c.n >= l.begin AND c.n < l.until)));
CREATE TABLE unacked AS
SELECT d.*, d.n > coalesce((SELECT max(a.n) FROM acked a WHERE a.view = d.view AND a.backup = d.backup
  AND a.n >= d.begin AND a.n < d.until AND (d.what = 'copy' OR a.reason = 'durable')), -1) AS beyond
FROM due d WHERE NOT EXISTS (FROM acked a WHERE a.view = d.view AND a.backup = d.backup AND a.n = d.n
  AND (d.what = 'copy' OR a.reason = 'durable'));
INSERT INTO found SELECT DISTINCT 'early', queue, epoch, NULL, if(what = 'disk', 'disk of ' || backup, NULL), id
FROM unacked u WHERE NOT beyond
OR (left_ts IS NULL AND NOT EXISTS (FROM put p WHERE p.kind = 'backup_enqueue' AND p.writer = u.backup
  AND p.queue = u.queue AND p.epoch = u.epoch AND p.id = u.id))
OR (left_ts IS NOT NULL AND EXISTS (
  FROM tag t JOIN clock k ON k.early = t.writer AND k.late = u.owner
  WHERE t.kind = 'confirmed' AND t.prod = u.prod AND t.tag = u.tag AND u.left_ts - t.ts - k.most > 250000));
INSERT INTO found SELECT DISTINCT 'early', c.queue, c.epoch, NULL, 'disk of ' || c.writer, c.id
FROM conf c JOIN writers w USING (process)
JOIN (SELECT process, max(n) AS top FROM on_disk GROUP BY process) d USING (process)
WHERE c.kind = 'enqueue' AND c.durable = 1
AND NOT EXISTS (FROM no_wait l WHERE l.own AND l.view = c.view AND l.owner = c.writer AND c.n >= l.begin AND c.n < l.until)
AND NOT EXISTS (FROM on_disk o WHERE o.process = c.process AND o.view = c.view AND o.n = c.n)
AND (w.sealed OR c.n <= (SELECT coalesce(max(n), 0) FROM on_disk o WHERE o.process = c.process AND o.view = c.view));

-- dequeues
INSERT INTO found SELECT DISTINCT 'unexplained', queue, epoch, NULL, nullif(reason, ''), id FROM fate
WHERE kind IN ('dequeue', 'backup_dequeue') AND reason NOT IN ('acked', 'expired', 'dead-lettered', 'rejected', 'dropped', 'purged', 'deleted',
  'queue-expired', 'queue-unused', 'owner-gone');
CREATE TABLE gone AS
SELECT f.*, (SELECT max(o.wseq) FROM owner o WHERE o.process = f.process AND o.wseq > f.wseq) AS later_promote FROM fate f
WHERE f.kind IN ('dequeue', 'backup_dequeue');
INSERT INTO found SELECT DISTINCT 'dequeued-twice', b.queue, b.epoch, NULL, b.writer, b.id
FROM fate b JOIN gone a USING (process, queue, epoch, id)
WHERE b.kind = 'dequeue' AND a.wseq < b.wseq AND (a.kind = 'dequeue' OR a.later_promote IS NOT NULL)
AND NOT EXISTS (FROM put p WHERE p.process = b.process AND p.queue = b.queue AND p.epoch = b.epoch AND p.id = b.id
  AND p.wseq > a.wseq AND p.wseq < b.wseq);
-- a process serves from its promotion on; its earlier dequeues as a backup count from then
CREATE TABLE served_end AS
SELECT g.process, g.writer, g.queue, g.epoch, g.id, o.view, o.ts AS since, greatest(g.ts, o.ts) AS ts, g.wseq, g.reason
FROM gone g JOIN owner o USING (process) WHERE (g.kind = 'dequeue' AND g.view = o.view) OR o.wseq > g.wseq;
CREATE TABLE returned AS
SELECT DISTINCT r.queue, r.epoch, r.id, r.ts, r.writer, s.view, s.writer AS node
FROM fate r JOIN served_end s USING (queue, epoch, id)
JOIN clock k ON k.early = s.writer AND k.late = r.writer JOIN clock b ON b.early = r.writer AND b.late = s.writer
WHERE r.kind = 'received' AND r.reason = 'redelivered' AND s.reason = 'acked' AND k.most + b.most <= 60000000 AND r.ts - s.ts - k.most > 1000000
AND NOT EXISTS (FROM put p WHERE p.process = s.process AND p.queue = s.queue AND p.epoch = s.epoch AND p.id = s.id
  AND p.wseq > s.wseq)
-- the dequeue may result from this receipt if no other consumer acked
AND EXISTS (FROM fate a WHERE a.kind = 'acked' AND a.queue = r.queue AND a.epoch = r.epoch AND a.id = r.id
  AND a.process <> r.process);
-- excludes times at which a later primary, or another one of that epoch, may have served
INSERT INTO found SELECT DISTINCT 'acked-returned', r.queue, r.epoch, NULL, r.node, r.id FROM returned r
ANTI JOIN (
  SELECT r.ts, r.writer, r.view, r.node FROM (SELECT DISTINCT ts, writer, view, node FROM returned) r
  JOIN owner o ON o.view > r.view OR (o.view = r.view AND o.writer <> r.node)
  LEFT JOIN clock z ON z.early = r.writer AND z.late = o.writer WHERE coalesce(o.ts - r.ts - z.most <= 0, true)
) USING (ts, writer, view, node);

-- primaries
INSERT INTO found SELECT 'two-primaries', NULL, view, NULL, NULL, NULL FROM owner GROUP BY view HAVING count(DISTINCT writer) > 1;
INSERT INTO found SELECT 'enqueued-by-two', queue, epoch, NULL, NULL, id FROM put WHERE kind = 'enqueue'
GROUP BY queue, epoch, id HAVING count(DISTINCT process) > 1;
INSERT INTO found SELECT DISTINCT 'two-primaries', c.queue, c.epoch, NULL, 'overlap', c.id
FROM conf c JOIN tag t ON t.prod = c.prod AND t.tag = c.tag AND t.kind = 'confirmed'
JOIN (SELECT p.view, p.writer, min(p.ts) AS ts FROM put p JOIN owner o ON o.view = p.view AND o.process = p.process
  WHERE p.kind = 'enqueue' GROUP BY p.view, p.writer) l ON l.view > c.epoch
JOIN clock k ON k.early = l.writer AND k.late = c.writer JOIN clock z ON z.early = l.writer AND z.late = t.writer
WHERE c.kind = 'enqueue' AND c.view = c.epoch AND c.ts - l.ts - k.most > 0 AND t.ts - l.ts - z.most > 0;

-- quarantine
INSERT INTO found SELECT DISTINCT 'quarantine-differs', q.queue, q.epoch, NULL, 'served', q.id
FROM fate q JOIN put p USING (queue, epoch, id) JOIN owner o ON o.process = p.process AND o.view > q.epoch
WHERE q.kind = 'quarantine' AND NOT EXISTS (FROM fate own WHERE own.kind = 'quarantine' AND own.process = p.process
  AND own.queue = q.queue AND own.epoch = q.epoch AND own.id = q.id AND own.wseq > p.wseq);
INSERT INTO found SELECT DISTINCT 'quarantine-differs', p.queue, p.epoch, NULL, 'missing', p.id
FROM put p JOIN known k USING (queue, epoch, id) JOIN on_disk d ON d.process = p.process AND d.view = p.view AND d.n = p.n
WHERE p.kind = 'enqueue' AND p.durable = 1 AND NOT k.ended AND NOT k.quarantined
AND NOT EXISTS (FROM put c WHERE c.queue = p.queue AND c.epoch = p.epoch AND c.id = p.id AND c.process <> p.process)
AND EXISTS (FROM rec i JOIN writers w ON w.writer = i.peer AND w.inc > p.inc
  WHERE i.kind = 'insync' AND i.peer = p.writer AND i.reason = 'included' AND i.view > p.epoch AND w.view >= i.view);

-- transactions
CREATE TABLE promised AS SELECT process, view, n, prod, unnest(generate_series(first, last)) AS tag FROM rec WHERE kind = 'commit';
CREATE TABLE part AS
SELECT q.process, c.view, c.n, c.prod, count(DISTINCT c.tag) AS tags,
  count(DISTINCT c.tag) FILTER (e.tag IS NOT NULL) AS entered,
  count(DISTINCT c.tag) FILTER (e.tag IS NOT NULL OR u.tag IS NOT NULL) AS there
FROM promised c
JOIN (SELECT DISTINCT process, view, n FROM put) q ON q.view = c.view AND q.n = c.n
LEFT JOIN (SELECT DISTINCT process, view, n, prod, tag FROM put) e
  ON e.process = q.process AND e.view = c.view AND e.n = c.n AND e.prod = c.prod AND e.tag = c.tag
LEFT JOIN (SELECT prod, tag FROM tag WHERE kind = 'unrouted' UNION SELECT prod, tag FROM left_out) u ON u.prod = c.prod AND u.tag = c.tag
GROUP BY q.process, c.view, c.n, c.prod;
INSERT INTO found SELECT DISTINCT 'torn', NULL, NULL, c.prod, w.writer, c.tag
FROM part p JOIN promised c USING (view, n, prod) JOIN writers w ON w.process = p.process
WHERE p.entered > 0 AND p.there < p.tags
AND (w.sealed OR p.n < (SELECT max(x.n) FROM put x WHERE x.process = p.process AND x.view = p.view));
