-- Lines of text -> records -> single ids and single tags. Every later statement joins these.
CREATE TABLE parsed AS
SELECT file, text, CASE WHEN json_valid(text) AND json_type(text) = 'OBJECT' THEN text::JSON END AS j FROM line;

CREATE TABLE rec AS
SELECT file, (j->>'v')::BIGINT AS v, j->>'writer' AS writer, (j->>'incarnation')::BIGINT AS inc,
  (j->>'wseq')::BIGINT AS wseq, (j->>'ts_us')::BIGINT AS ts, (j->>'view')::BIGINT AS view, j->>'kind' AS kind,
  j->>'queue' AS queue, (j->>'epoch')::BIGINT AS epoch, (j->>'first')::BIGINT AS first,
  (j->>'last')::BIGINT AS last, coalesce(j->>'reason', '') AS reason, j->>'prod' AS prod,
  (j->>'pfirst')::BIGINT AS pfirst, coalesce(j->>'name', '') AS name, coalesce(j->>'peer', '') AS peer,
  (j->>'n')::BIGINT AS n, (j->>'number')::BIGINT AS number, coalesce((j->>'durable')::BIGINT, 0) AS durable,
  (j->>'writer') || '#' || (j->>'incarnation') AS process
FROM parsed WHERE j IS NOT NULL AND (j->>'wseq') IS NOT NULL;

CREATE TABLE bad AS SELECT file FROM parsed WHERE j IS NULL OR (j->>'wseq') IS NULL;

CREATE TABLE writers AS
SELECT process, any_value(writer) AS writer, any_value(inc) AS inc, max(view) AS view,
  max(name) FILTER (kind = 'open') AS role, bool_or(kind = 'seal') AS sealed
FROM rec GROUP BY process;

-- enqueues by brokers, one row per id
CREATE TABLE put AS
SELECT process, writer, inc, wseq, ts, view, kind, queue, epoch, n, durable, prod, name AS producer,
  unnest(generate_series(first, last)) AS id, unnest(generate_series(pfirst, pfirst + last - first)) AS tag,
  unnest(generate_series(number, number + last - first)) AS number
FROM rec WHERE kind IN ('enqueue', 'backup_enqueue');

-- other records about ids
CREATE TABLE fate AS
SELECT process, writer, inc, wseq, ts, view, kind, queue, epoch, reason, name,
  unnest(generate_series(first, last)) AS id
FROM rec
WHERE kind IN ('dequeue', 'backup_dequeue', 'received', 'acked', 'present', 'quarantine', 'quiesce');

-- records of producers and primaries about publish tags
CREATE TABLE tag AS
SELECT process, writer, ts, kind, prod, unnest(generate_series(first, last)) AS tag,
  unnest(generate_series(pfirst, pfirst + last - first)) AS logical
FROM rec WHERE kind IN ('sent', 'confirmed', 'nacked', 'returned', 'unrouted');

-- messages that a queue left out, because it had their numbers, and the ids that stand for them
CREATE TABLE left_out AS
SELECT writer, view, queue, name AS producer, prod, unnest(generate_series(first, last)) AS tag,
  unnest(generate_series(number, number + last - first)) AS number
FROM rec WHERE kind = 'duplicate';
CREATE TABLE stand_in AS
SELECT l.prod, l.tag, p.queue, p.epoch, p.id
FROM left_out l JOIN put p USING (queue, producer, number) WHERE p.epoch <= l.view
QUALIFY row_number() OVER (PARTITION BY l.prod, l.tag, p.queue ORDER BY p.epoch DESC, p.id DESC) = 1;

CREATE TABLE outcome AS
SELECT prod, tag, count(*) FILTER (kind = 'sent') AS sent, bool_or(kind = 'confirmed') AS confirmed,
  bool_or(kind = 'nacked') AS nacked, bool_or(kind = 'returned') AS returned,
  bool_or(kind = 'unrouted') AS unrouted, bool_or(kind = 'placed') AS placed
FROM (SELECT prod, tag, kind FROM tag UNION ALL SELECT prod, tag, 'placed' FROM put WHERE prod IS NOT NULL
  UNION ALL SELECT prod, tag, 'placed' FROM stand_in WHERE prod IS NOT NULL)
GROUP BY prod, tag;

CREATE TABLE conf AS
SELECT put.* FROM put JOIN outcome o ON o.prod = put.prod AND o.tag = put.tag WHERE o.confirmed;

-- the owner of each epoch, and the owners whose inventory counts
CREATE TABLE owner AS SELECT DISTINCT view, process, writer, inc, ts, wseq FROM rec WHERE kind = 'promote';
CREATE TABLE last_owner AS
SELECT process FROM owner JOIN writers USING (process) WHERE sealed AND owner.view = (SELECT max(view) FROM owner);
CREATE TABLE stock AS
SELECT DISTINCT queue, epoch, id FROM fate
WHERE kind = 'present' AND CASE WHEN EXISTS (FROM last_owner) THEN process IN (FROM last_owner)
  ELSE process IN (SELECT process FROM writers WHERE view = (SELECT max(view) FROM owner)) END;

-- one row per id with everything known of it
CREATE TABLE known AS
SELECT queue, epoch, id, bool_or(k = 'put') AS seen, bool_or(k = 'confirmed') AS confirmed,
  bool_or(k = 'held') AS held, bool_or(k = 'fate') AS ended, bool_or(k = 'quarantine') AS quarantined,
  count(*) FILTER (k = 'fresh') AS fresh, count(*) FILTER (k = 'flagged') AS flagged
FROM (
  SELECT queue, epoch, id, 'put' AS k FROM put
  UNION ALL SELECT queue, epoch, id, 'confirmed' FROM conf
  UNION ALL SELECT queue, epoch, id, 'confirmed' FROM stand_in JOIN outcome USING (prod, tag) WHERE confirmed
  UNION ALL SELECT queue, epoch, id, 'held' FROM put WHERE process IN (FROM last_owner)
  UNION ALL SELECT queue, epoch, id, 'fate' FROM fate
    WHERE kind = 'acked' OR (kind IN ('dequeue', 'backup_dequeue') AND reason <> '')
  UNION ALL SELECT queue, epoch, id, 'fate' FROM stock
  UNION ALL SELECT queue, epoch, id, 'quarantine' FROM fate WHERE kind = 'quarantine'
  UNION ALL SELECT queue, epoch, id, if(reason = 'redelivered', 'flagged', 'fresh') FROM fate
    WHERE kind = 'received'
) GROUP BY queue, epoch, id;

-- bounds of clocks: the clock of `late` minus that of `early` is at most `most` microseconds, by cause and effect
CREATE TABLE cause AS
WITH answered AS (
  SELECT prod, tag, min(ts) AS ts, any_value(writer) AS writer FROM tag WHERE kind = 'confirmed'
  GROUP BY prod, tag HAVING count(*) = 1
), once AS (
  SELECT queue, epoch, id FROM fate GROUP BY queue, epoch, id
  HAVING count(*) FILTER (kind = 'received') = 1 AND count(*) FILTER (kind = 'dequeue') = 1
), edge AS (
  SELECT t.writer AS early, p.writer AS late, p.ts - t.ts AS gap
  FROM tag t JOIN put p ON p.prod = t.prod AND p.tag = t.tag AND p.kind = 'enqueue' WHERE t.kind = 'sent'
  UNION ALL
  SELECT p.writer, a.writer, a.ts - p.ts
  FROM put p JOIN answered a ON a.prod = p.prod AND a.tag = p.tag WHERE p.kind = 'enqueue'
  UNION ALL
  SELECT p.writer, c.writer, c.ts - p.ts
  FROM put p JOIN put c USING (queue, epoch, id) WHERE p.kind = 'enqueue' AND c.kind = 'backup_enqueue'
  UNION ALL
  SELECT p.writer, f.writer, f.ts - p.ts
  FROM put p JOIN fate f USING (queue, epoch, id) WHERE p.kind = 'enqueue' AND f.kind = 'received'
  UNION ALL
  SELECT r.writer, d.writer, d.ts - r.ts FROM once JOIN fate r USING (queue, epoch, id)
  JOIN fate d USING (queue, epoch, id) WHERE r.kind = 'received' AND d.kind = 'dequeue' AND d.reason = 'acked'
)
SELECT early, late, min(gap) AS most FROM edge WHERE early <> late GROUP BY early, late;

CREATE TABLE clock AS
WITH RECURSIVE path(early, late, most, steps) AS (
  SELECT early, late, most, 1 FROM cause
  UNION
  SELECT p.early, c.late, min(p.most + c.most), p.steps + 1 FROM path p JOIN cause c ON c.early = p.late
  WHERE p.steps < 4 AND c.late <> p.early GROUP BY p.early, c.late, p.steps
)
SELECT early, late, min(most) AS most FROM path GROUP BY early, late
UNION ALL SELECT DISTINCT writer, writer, 0 FROM rec;
