-- The rows that have a name.
create view multimatch.feed as select * from multimatch.named_feeds();
create view multimatch.feed_item as select * from multimatch.named_items();
create view multimatch.enclosure as select * from multimatch.named_enclosures();
