"""What holds between the tables of the work area at every moment, as queries that find each violation."""

from usher.db.pool import Connection

DEAD = "(k.state = 'error' or k.index_state = 'retired')"
INVARIANTS = {
    "a page points at a dead chunk": f"""
        select g.path, g.state, k.id from work.guestbook g join work.chunk k on k.id = g.indexed_in where {DEAD}
    """,
    "a page points at no chunk at all": """
        select g.path, g.indexed_in from work.guestbook g
        where g.indexed_in is not null and not exists (select from work.chunk k where k.id = g.indexed_in)
    """,
    "a page is being crawled in a chunk that is not": """
        select g.path, k.id, k.state from work.guestbook g join work.chunk k on k.id = g.chunk_id
        where g.state = 'crawling' and k.state <> 'crawling'
    """,
    "a page waits on a host that sleeps": """
        select h.name, g.path from work.guestbook g join work.hosts h using (domain64)
        where g.state = 'pending' and h.claim_at = 'infinity'
    """,
    "a new page waits although the crawl of its host is over": """
        select h.name, g.path, g.state from work.guestbook g join work.hosts h using (domain64)
        where g.state in ('pending', 'crawling') and g.priority > 0 and g.last_fetched is null and g.failures = 0
            and g.indexed_in is null and h.crawl_started is null
    """,
    "a page was read and is in no index": """
        select g.path, g.chunk_id from work.guestbook g
        where g.state = 'crawled' and g.status in (200, 304) and not g.noindex and not g.gone and g.indexed_in is null
            and (g.text64 is not null or g.etag is not null)
    """,
    "a host is held by a chunk that is not being crawled": """
        select h.name, k.id, k.state from work.hosts h left join work.chunk k on k.id = h.held_by
        where h.held_by is not null and k.state is distinct from 'crawling'
    """,
    "a held host is free before its chunk": """
        select h.name, h.ready_at, k.lease_until from work.hosts h join work.chunk k on k.id = h.held_by
        where h.ready_at < k.lease_until
    """,
    "a dead chunk is to be loaded": f"""
        select k.id, p.component_id, p.state from work.placement p join work.chunk k on k.id = p.chunk_id
        where {DEAD} and p.state <> 'leaving'
    """,
    "a dead chunk waits for a place": f"""
        select k.id, u."row" from work.unplaced_chunk u join work.chunk k on k.id = u.chunk_id where {DEAD}
    """,
    "a built chunk has no place and waits for none": """
        select k.id, r from work.chunk k cross join work.settings h cross join generate_series(1, h.placed_rows) r
        where k.index_state = 'built'
            and not exists (
                select from work.placement p where p.chunk_id = k.id and p."row" = r and p.state <> 'leaving'
            )
            and not exists (select from work.unplaced_chunk u where u.chunk_id = k.id and u."row" = r)
    """,
    "the number of places is not the number of rows": """
        select component_id, "row", s.placements, p.placements
        from (select component_id, "row", placements from work.server_load where placements <> 0) s
        full join (
            select component_id, "row", count(*) as placements
            from work.placement where state <> 'leaving' group by 1, 2
        ) p using (component_id, "row")
        where s.placements is distinct from p.placements
    """,
    "an old copy belongs to a dead chunk, or is replaced by one": f"""
        select o.page_id, o.chunk_id, o.newer from work.stale_copy o join work.chunk k on k.id in (o.chunk_id, o.newer)
        where {DEAD}
    """,
    "an old copy is kept although another chunk has the page": """
        select g.path, o.chunk_id, o.newer, g.indexed_in
        from work.stale_copy o
        join work.guestbook g on g.id = o.page_id
        where g.indexed_in is not null and not o.ready and o.newer is distinct from g.indexed_in
    """,
    "the newest copy is out of date": """
        select g.path, o.chunk_id from work.stale_copy o join work.guestbook g on g.id = o.page_id
        where o.chunk_id = g.indexed_in
    """,
    "a dead chunk is being made of others": f"""
        select k.id from work.chunk_source m join work.chunk k on k.id = m.chunk_id where m.open and {DEAD}
    """,
}


async def violations(conn: Connection) -> list[tuple[str, object]]:
    """Every invariant that does not hold, with the rows that show it."""
    found: list[tuple[str, object]] = []
    for name, query in INVARIANTS.items():
        rows = await (await conn.execute(query.encode())).fetchall()
        found += [(name, row) for row in rows[:5]]
    return found
