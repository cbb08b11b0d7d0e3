"""The schemas of the databases: migrations, roles and grants, dumps and restores.

Each directory of `.sql` files can also be run by the dbmate tool:
`dbmate --migrations-dir …/work --migrations-table work.schema_migrations up`.
"""
