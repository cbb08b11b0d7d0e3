-- Whether the anchors of a page changed so much that the page is indexed again: the number of linking pages doubled or halved
-- since a builder was last told. So a page with n linking pages is indexed again at most log2(n) times while they come.
create function work.anchors_changed(inlinks integer, indexed_inlinks integer) returns boolean
    language sql immutable
as $$
    select greatest(inlinks, indexed_inlinks) >= 2 * least(inlinks, indexed_inlinks) and greatest(inlinks, indexed_inlinks) > 0;
$$;
