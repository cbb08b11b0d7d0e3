"""Makes crawled pages findable.

Comes in: pages that were taken apart, and questions. Goes out: index chunks (one checksummed file each), and ranked
hits from one Tantivy index per server. Central names: `document.from_page`, `chunkfile.write` and `read`,
`engine.Engine`.
"""
