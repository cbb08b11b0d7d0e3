-- Maintains work.server_load: how many placements each server has that are not leaving, and how often they changed.
create function work.count_placements() returns trigger
    language plpgsql set search_path = ''
as $$
begin
    if tg_op = 'INSERT' then
        insert into work.server_load as s (component_id, "row", placements, changes)
        select n.component_id, n."row", count(*) filter (where n.state <> 'leaving'), 1
        from new_rows n
        group by n.component_id, n."row"
        order by n.component_id, n."row"
        on conflict (component_id, "row") do update
        set placements = s.placements + excluded.placements, changes = s.changes + 1;
    elsif tg_op = 'DELETE' then
        update work.server_load s
        set placements = s.placements - o.placements, changes = s.changes + 1
        from (
            select component_id, "row", count(*) filter (where state <> 'leaving') as placements
            from old_rows group by component_id, "row"
        ) o
        where s.component_id = o.component_id and s."row" = o."row";
    else
        insert into work.server_load as s (component_id, "row", placements, changes)
        select b.component_id, b."row", sum(b.placement), 1
        from (
            select component_id, "row", (state <> 'leaving')::integer as placement from new_rows
            union all
            select component_id, "row", -(state <> 'leaving')::integer from old_rows
        ) b
        group by b.component_id, b."row"
        order by b.component_id, b."row"
        on conflict (component_id, "row") do update
        set placements = s.placements + excluded.placements, changes = s.changes + 1;
    end if;
    return null;
end
$$;

create trigger count_new_placements after insert on work.placement
    referencing new table as new_rows for each statement execute function work.count_placements();

create trigger count_old_placements after delete on work.placement
    referencing old table as old_rows for each statement execute function work.count_placements();

create trigger count_changed_placements after update on work.placement
    referencing old table as old_rows new table as new_rows for each statement execute function work.count_placements();
