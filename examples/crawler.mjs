// A small polite crawler. Run it as node crawler.mjs http://MGMT:8411 OWN-ADDRESS:PORT DIRECTORY [TOKEN].
import { createReadStream, mkdirSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { gzipSync } from "node:zlib";

const [MGMT, HOST, DIRECTORY, TOKEN] = process.argv.slice(2);
const HEADERS = { "X-Usher-Host": HOST, ...(TOKEN && { Authorization: `Bearer ${TOKEN}` }) };
const SITE = { headers: { "User-Agent": "example-crawler" } };

async function mgmt(path, body) {
  const post = body && { method: "POST", body: JSON.stringify(body) };
  const answer = await fetch(MGMT + path, { headers: HEADERS, ...post });
  return answer.ok ? answer.json() : Promise.reject(new Error(`${path}: ${await answer.text()}`));
}

// Obeys every Disallow line of robots.txt, also those for other crawlers.
async function isAllowed(url) {
  const answer = await fetch(new URL("/robots.txt", url), SITE);
  const lines = answer.ok ? [...(await answer.text()).matchAll(/^disallow:[ \t]*(\S+)/gim)] : [];
  const rules = lines.map((line) => line[1].replace(/[.+?()[\]{}|^\\]/g, "\\$&").replaceAll("*", ".*"));
  return answer.status < 500 && !rules.some((rule) => RegExp(`^${rule}`).test(url.pathname + url.search));
}

// Returns a record of the WARC file. Each is a gzip member.
function record(fields, block) {
  const id = `WARC-Record-ID: <urn:uuid:${crypto.randomUUID()}>\r\nWARC-Date: ${new Date().toISOString()}`;
  const head = `WARC/1.1\r\n${id}\r\n${fields}Content-Length: ${block.length}\r\n\r\n`;
  return gzipSync(Buffer.concat([Buffer.from(head), block, Buffer.from("\r\n\r\n")]));
}

// Fetches a page and sends its links to MGMT. Returns what MGMT wants to know about the page.
async function visit({ link, crawl_delay }, records) {
  if (!(await isAllowed(new URL(link)))) return { link, result: "barred" };
  await sleep(1000 * crawl_delay);
  const answer = await fetch(link, { ...SITE, signal: AbortSignal.timeout(30_000) });
  if (!answer.ok) return { link, result: "failure", status: answer.status };
  const http = `HTTP/1.1 200 OK\r\nContent-Type: ${answer.headers.get("content-type")}\r\n\r\n`;
  const body = Buffer.from(await answer.arrayBuffer());
  const fields = `WARC-Type: response\r\nWARC-Target-URI: ${link}\r\nContent-Type: application/http\r\n`;
  records.push(record(fields, Buffer.concat([Buffer.from(http), body])));
  const hrefs = [...body.toString().matchAll(/<a\s[^>]*?href=["']?([^"'\s>]+)/gi)].map((match) => match[1]);
  const valid = ["", ...hrefs].filter((href) => URL.canParse(href, answer.url));
  await mgmt("/add_links", { links: valid.map((href) => new URL(href, answer.url).href), found_on: link });
  return { link, result: answer.url === link ? "success" : "moved", status: 200 };
}

mkdirSync(DIRECTORY, { recursive: true });
createServer((request, answer) => {
  const chunk = /^\/get_chunk\/(\d+)$/.exec(request.url)?.[1];
  if (!chunk) return answer.end('{"status": "healthy"}'); // GET /get_health_status
  createReadStream(`${DIRECTORY}/${chunk}`).on("error", () => answer.writeHead(404).end()).pipe(answer);
}).listen(...HOST.split(":").reverse());
await mgmt("/set_component_state", { state: "online", type: "crawler", anew: true });
for (;; await sleep(1000)) {
  const { chunk_id, pages } = await mgmt("/get_links?pages=1");
  if (!chunk_id) continue;
  const records = [record("WARC-Type: warcinfo\r\n", Buffer.from("software: example-crawler\r\n"))];
  const reports = [];
  for (const page of pages)
    reports.push(await visit(page, records).catch(() => ({ link: page.link, result: "failure" })));
  writeFileSync(`${DIRECTORY}/${chunk_id}`, Buffer.concat(records));
  await mgmt("/set_content_chunk_metadata", { chunk_id, state: "crawled", pages: reports });
}
