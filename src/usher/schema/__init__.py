"""What the databases look like: dbmate migrations for each schema, roles and grants, dumps.

Comes in: the places of the areas. Goes out: schemas that match this program. Central names: `migrate.migrate`,
`migrate.ensure`, `roles.create`, `roles.check`, `dump.dump`. Each directory of numbered `.sql` files can be run by the
plain dbmate tool too: `dbmate --migrations-dir …/work --migrations-table work.schema_migrations up`.
"""
