grant usage on schema multimatch to usher_feeds, usher_reader;
grant select on multimatch.schema_migrations to usher_feeds, usher_reader;
grant select on multimatch.feed_urn, multimatch.feed_item_urn, multimatch.enclosure_urn, multimatch.feed,
    multimatch.feed_item, multimatch.enclosure to usher_feeds, usher_reader;
grant insert on multimatch.feed_urn, multimatch.feed_item_urn, multimatch.enclosure_urn to usher_feeds;
grant execute on function multimatch.new_urn(text, boolean), multimatch.name_all() to usher_feeds;
grant execute on function multimatch.named_feeds(), multimatch.named_items(), multimatch.named_enclosures()
    to usher_feeds, usher_reader;
