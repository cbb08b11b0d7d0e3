grant usage on schema work to usher_door, usher_mgmt, usher_reader;
grant select on work.schema_migrations to usher_door, usher_mgmt, usher_reader;

-- Numbers are permanent: no role may change or delete a TLD or a domain.
grant select on work.tld, work.domain, work.hosts to usher_door, usher_mgmt, usher_reader;
grant insert on work.tld, work.domain, work.hosts to usher_door;

grant select on work.settings, work.guestbook, work.content_type to usher_door, usher_mgmt, usher_reader;
grant update (revision, cadence, filters, max_pages, max_depth) on work.settings to usher_door;
grant insert, update on work.guestbook to usher_door;
grant usage on sequence work.guestbook_id_seq to usher_door;
grant update (next_fetch, crawl_started, last_crawl_started, last_crawl_ended, cadence, adaptive, crawl_delay, ready_at,
    scheme, policy, policy_reason, scope, scope_ranges, filters, max_pages, max_depth, pages, revision)
    on work.hosts to usher_door;

-- To put a host with new pages into the queue of claims.
grant update (claim_at, empty_checks) on work.hosts to usher_door;

-- MGMT creates chunks, records their results, places them and watches components. Only the door judges URLs.
grant select on work.component, work.chunk, work.placement, work.event, work.query_stat, work.politeness_group to usher_mgmt, usher_reader;
grant select, insert on work.token to usher_mgmt;
grant update (used_at, revoked_at, address) on work.token to usher_mgmt;
grant select on work.ticket_key to usher_mgmt;
grant select, insert, delete on work.console_session to usher_mgmt;
grant insert, update on work.component, work.chunk, work.placement, work.politeness_group to usher_mgmt;
grant delete on work.placement to usher_mgmt;
grant select on work.unplaced_chunk, work.server_load to usher_mgmt, usher_reader;
grant insert, delete on work.unplaced_chunk to usher_mgmt;
grant insert, update on work.server_load to usher_mgmt;
grant insert on work.event, work.query_stat to usher_mgmt;
grant select on work.chunk_object to usher_mgmt, usher_reader;
grant insert, update, delete on work.chunk_object to usher_mgmt;
grant select on work.stored_object to usher_mgmt, usher_reader;
grant execute on function work.is_object_needed(work.chunk_object, timestamptz) to usher_mgmt;
-- The console records an action of an operator in the transaction of the change, which may be the door's.
grant insert on work.event to usher_door;
-- The sample of refused URLs is of the MGMT that judged them, under the door's role.
grant select on work.refused_url to usher_door, usher_mgmt, usher_reader;
grant insert, update, delete on work.refused_url to usher_door;
grant delete on work.event, work.query_stat to usher_mgmt;
grant select on work.history to usher_mgmt, usher_reader;
grant insert, update, delete on work.history to usher_mgmt;
grant select on work.query_day, work.query_day_term to usher_mgmt, usher_reader;
grant insert, update, delete on work.query_day, work.query_day_term to usher_mgmt;
grant update on work.guestbook to usher_mgmt;
grant update (next_fetch, crawl_started, last_crawl_started, last_crawl_ended, ready_at, claim_at, empty_checks, troubles,
    trouble_at, trouble, politeness_group_id, held_by, robots_at, robots_delay, rest_until) on work.hosts to usher_mgmt;
grant select on work.robots, work.sitemap to usher_mgmt, usher_reader;
grant insert, update on work.robots, work.sitemap to usher_mgmt;
grant select on work.feed_offer to usher_mgmt, usher_reader;
grant insert, update on work.feed_offer to usher_mgmt;
grant select on work.watchdog_round to usher_mgmt, usher_reader;
grant insert, update on work.watchdog_round to usher_mgmt;
grant select on work.stale_copy, work.retirement to usher_mgmt, usher_reader;
grant insert, update, delete on work.stale_copy to usher_mgmt;
grant insert, delete on work.retirement to usher_mgmt;
grant execute on function work.retire_copies(bigint[]) to usher_mgmt;
grant select on work.compaction_candidate, work.chunk_source to usher_mgmt, usher_reader;
grant insert, update, delete on work.compaction_candidate to usher_mgmt;
grant insert, update on work.chunk_source to usher_mgmt;
grant execute on function work.in_every_row(bigint), work.is_obsolete(bigint), work.may_hold_unreported_text(work.guestbook),
    work.holds_removed_text(bigint)
    to usher_mgmt;
-- Anchor texts: MGMT stores what crawlers report, and forgets what is no longer there.
grant select on work.anchor, work.anchored_page to usher_mgmt, usher_reader;
grant insert, update, delete on work.anchor, work.anchored_page to usher_mgmt;
grant execute on function
    work.add_anchors(bigint[], text[], bigint[], text[], text[], timestamptz),
    work.check_anchors(bigint, integer, interval, timestamptz), work.forget_anchors(bigint[], timestamptz),
    work.anchors_changed(integer, integer), work.inlinks(bigint),
    work.drop_weak_anchors(bigint[]), work.has_link(bigint, timestamptz), work.gains_pages(bigint[], bigint[])
    to usher_mgmt;
-- Site templates: MGMT stores what builders report, and computes the templates.
grant select on work.sampled_page, work.site_template to usher_mgmt, usher_reader;
grant insert, update, delete on work.sampled_page to usher_mgmt;
grant insert, update on work.site_template to usher_mgmt;
grant execute on function
    work.add_samples(bigint, bigint[], integer[], bigint[], integer[]),
    work.update_templates(integer, interval, timestamptz), work.forget_samples(bigint[]), work.sample_rank(bigint),
    work.min_template_pages(bigint)
    to usher_mgmt;
grant update ("rows", placed_rows, crawl_delay) on work.settings to usher_mgmt;
grant execute on function
    work.settle(bigint[], text[], bigint[], text[], smallint[], smallint[], integer[], text[], text[], timestamptz[],
        bigint[], boolean[], smallint[], text[], timestamptz)
    to usher_door, usher_mgmt;
grant execute on function work.is_gone(text, smallint, boolean, smallint), work.is_unreadable(bigint, bigint, smallint, smallint, text),
    work.revisit_pause(interval, text, boolean, smallint), work.adapted_cadence(interval, interval, boolean),
    work.hinted_pause(interval) to usher_door, usher_mgmt;
grant execute on function work.close_crawls(bigint[], timestamptz), work.lock_out_knocks(bigint[]) to usher_door, usher_mgmt;
grant execute on function
    work.report(bigint[], text[], bigint[], text[], smallint[], smallint[], integer[], text[], text[], timestamptz[],
        bigint[], boolean[], smallint[], text[], timestamptz),
    work.finish_crawl(bigint, bigint, text, bigint, boolean, bigint[], text[], text[], smallint[], smallint[], integer[],
        text[], text[], timestamptz[], bigint[], boolean[], smallint[], text[], timestamptz),
    work.record_stale_copies(bigint[], bigint[], bigint[], timestamptz), work.release_hosts(bigint[], timestamptz),
    work.return_pages(bigint, timestamptz), work.wake(bigint[], timestamptz), work.replace_copies(bigint[], bigint[]),
    work.rest_after_trouble(smallint, interval)
    to usher_mgmt;
grant execute on function
    work.claim_links(bigint[], integer[], integer[], integer[], bigint, interval[], interval[], boolean[], timestamptz, bigint[])
    to usher_mgmt;

-- PUBLIC may call nothing here. These compute from their arguments alone.
grant execute on function work.domain64_decode(bigint), work.domain64_encode(integer, integer, integer, integer),
    work.domain64_from_hex(text), work.domain64_hex(bigint), work.domain64_range(integer, integer, integer),
    work.max_bigint(), work.effective_crawl_delay(interval, interval, interval), work.page_result(work.guestbook),
    work.error_kind(work.guestbook) to usher_door, usher_mgmt, usher_reader;

-- The relations of seed 000, to read only.
grant usage on schema mgmt to usher_mgmt, usher_reader;
grant select on mgmt.link, mgmt.chunk, mgmt.host, mgmt.crawler, mgmt.index_builder, mgmt.index_server
    to usher_mgmt, usher_reader;

-- The operator's permissions for hosts that are not public; only the functions write them.
grant select on work.private_access to usher_door, usher_mgmt, usher_reader;
grant execute on function work.allow_private(text, integer, inet[], timestamptz), work.forbid_private(text) to usher_door;
grant execute on function work.retry_failures(bigint[], timestamptz) to usher_door;
grant select (host) on work.component to usher_door;
grant execute on function work.session_versions() to usher_mgmt, usher_reader;

-- The incarnation: MGMT reads it, and starts a new one when it sees that the database went back in time.
grant select on work.incarnation, work.unrestored to usher_mgmt, usher_reader;
grant delete on work.unrestored to usher_mgmt;
grant select on sequence work.chunk_id_seq to usher_mgmt;
grant execute on function work.begin_incarnation(text) to usher_mgmt;

-- Removals: the operator adds and undoes them through functions, and no role may write the table. MGMT sweeps them.
grant select on work.removal to usher_door, usher_mgmt, usher_reader;
grant update (swept_at, swept_host, swept_path, pages) on work.removal to usher_mgmt;
grant execute on function work.host_and_parents(text), work.is_removed(text, text) to usher_door, usher_mgmt, usher_reader;
grant execute on function
    work.add_removal(text, text, boolean, text[], text, text, text, bigint, bigint, timestamptz),
    work.undo_removal(text, text, bigint, bigint, timestamptz)
    to usher_door;
grant execute on function
    work.withdraw_removed(bigint[], timestamptz), work.readmit_removed(bigint[], timestamptz)
    to usher_mgmt;
