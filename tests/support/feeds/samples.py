"""Feeds written by hand, one of each common dialect, with every element that the parser keeps."""

RSS = b"""<?xml version="1.0" encoding="UTF-8"?>
<rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom" xmlns:dc="http://purl.org/dc/elements/1.1/"
  xmlns:content="http://purl.org/rss/1.0/modules/content/" xmlns:slash="http://purl.org/rss/1.0/modules/slash/"
  xmlns:wfw="http://wellformedweb.org/CommentAPI/" xmlns:sy="http://purl.org/rss/1.0/modules/syndication/"
  xmlns:georss="http://www.georss.org/georss" xmlns:ev="http://purl.org/rss/1.0/modules/event/"
  xmlns:creativeCommons="http://backend.userland.com/creativeCommonsRssModule">
<channel>
  <title>All &amp; Sundry</title>
  <link>https://news.example/</link>
  <description>What happens</description>
  <language>en-gb</language>
  <copyright>The News</copyright>
  <creativeCommons:license>https://cc.example/by</creativeCommons:license>
  <managingEditor>ed@news.example (Edith)</managingEditor>
  <category domain="https://c.example/">World</category>
  <generator>Pen 2</generator>
  <pubDate>Mon, 06 Sep 2021 10:00:00 GMT</pubDate>
  <lastBuildDate>Mon, 06 Sep 2021 11:00:00 GMT</lastBuildDate>
  <ttl>90</ttl>
  <skipHours><hour>0</hour><hour>24</hour><hour>5</hour><hour>99</hour></skipHours>
  <skipDays><day>Sunday</day><day>never</day></skipDays>
  <sy:updatePeriod>daily</sy:updatePeriod><sy:updateFrequency>4</sy:updateFrequency>
  <cloud domain="cloud.example" port="80" path="/RPC2" registerProcedure="notify" protocol="xml-rpc"/>
  <image><url>/logo.png</url><title>Logo</title><link>https://news.example/</link><width>88</width><height>31</height></image>
  <atom:link rel="self" type="application/rss+xml" href="https://news.example/rss"/>
  <atom:link rel="hub" href="https://hub.example/"/>
  <item>
    <title>First</title>
    <link>https://news.example/1</link>
    <guid isPermaLink="false">n-1</guid>
    <description>Short &lt;a href="rel"&gt;x&lt;/a&gt;</description>
    <content:encoded><![CDATA[<p>Long <img src="/i.png"> <a href='https://x.example/'>x</a></p>]]></content:encoded>
    <pubDate>Mon, 06 Sep 2021 12:00:00 +0200</pubDate>
    <author>joe@news.example (Joe)</author><dc:creator>Ann</dc:creator><dc:creator>Ann</dc:creator>
    <category>A</category><category domain="d">B</category><dc:subject>A</dc:subject>
    <comments>https://news.example/1#c</comments><slash:comments>7</slash:comments>
    <wfw:commentRss>https://news.example/1/rss</wfw:commentRss>
    <enclosure url="/1.mp3" length="1234" type="audio/mpeg"/>
    <source url="https://other.example/rss">Other</source>
    <georss:point>52.5 13.4</georss:point><georss:featurename>Berlin</georss:featurename>
  </item>
  <item><description>only a text</description></item>
  <item><title>Second</title><guid>https://news.example/2</guid><dc:language>de</dc:language></item>
</channel></rss>"""

ATOM = b"""<?xml version="1.0" encoding="utf-8"?>
<feed xmlns="http://www.w3.org/2005/Atom" xmlns:thr="http://purl.org/syndication/thread/1.0" xml:lang="en-US"
  xml:base="https://blog.example/base/">
  <title type="html">A &amp;lt;b&amp;gt; blog</title><subtitle>Words</subtitle>
  <link href="/"/><link rel="self" href="atom.xml"/><link rel="hub" href="https://hub.example/"/>
  <link rel="license" href="https://cc.example/"/>
  <id>tag:blog.example,2021:/</id><updated>2021-09-06T10:00:00Z</updated><rights>Mine</rights>
  <generator uri="https://g.example/" version="1">Gen</generator><icon>/favicon.ico</icon><logo>/logo.svg</logo>
  <author><name>Ann</name><uri>/ann</uri></author><contributor><name>Bob</name></contributor>
  <category term="tech" scheme="https://s.example/" label="Technology"/>
  <entry>
    <title>Plain &amp;amp; simple</title><id>tag:blog.example,2021:1</id>
    <link href="1" title="One"/><link rel="enclosure" href="1.pdf" type="application/pdf" length="99" title="Paper"/>
    <link rel="replies" href="1/atom" type="application/atom+xml"/>
    <published>2021-09-05T10:00:00+02:00</published><updated>2021-09-06T10:00:00.5Z</updated>
    <author><name>Cid</name><email>cid@blog.example</email></author>
    <category term="a"/><thr:total>3</thr:total>
    <content type="xhtml">
    <div xmlns="http://www.w3.org/1999/xhtml"><p class="x">Hi <br/><a href="2">two</a> &amp; more</p></div></content>
  </entry>
  <entry xml:lang="fr"><title/><id>tag:blog.example,2021:2</id><updated>2021-09-06T10:00:00Z</updated>
    <content type="html">&lt;p&gt;Salut&lt;/p&gt;</content><summary>bref</summary></entry>
</feed>"""

RDF = b"""<?xml version="1.0"?>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="http://purl.org/rss/1.0/"
  xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:cc="http://web.resource.org/cc/">
<channel rdf:about="https://s.example/"><title>S</title><link>https://s.example/</link><description>d</description>
  <dc:language>nl</dc:language><items><rdf:Seq><rdf:li rdf:resource="https://s.example/1"/></rdf:Seq></items>
  <image rdf:resource="https://s.example/i.png"/></channel>
<image rdf:about="https://s.example/i.png"><title>S</title>
  <url>https://s.example/i.png</url><link>https://s.example/</link></image>
<item rdf:about="https://s.example/1"><title>One</title><link>https://s.example/1</link><description>D</description>
  <dc:date>2021-09-06T10:00:00+00:00</dc:date><dc:creator>bob</dc:creator>
  <cc:license rdf:resource="https://cc.example/"/></item>
</rdf:RDF>"""

PODCAST = b"""<?xml version="1.0" encoding="utf-8"?>
<rss version="2.0" xmlns:itunes="http://www.itunes.com/dtds/podcast-1.0.dtd"
  xmlns:podcast="https://podcastindex.org/namespace/1.0"><channel>
  <title>Pod</title><itunes:summary>Sum</itunes:summary><description>Desc</description><itunes:author>Ann</itunes:author>
  <itunes:owner><itunes:name>Corp</itunes:name><itunes:email>a@corp.example</itunes:email></itunes:owner>
  <itunes:image href="https://p.example/i.jpg"/><itunes:explicit>false</itunes:explicit>
  <itunes:category text="News"><itunes:category text="Daily"/></itunes:category>
  <itunes:keywords>k1, k2</itunes:keywords>
  <itunes:new-feed-url>https://new.example/rss</itunes:new-feed-url>
  <item><title>Ep 1</title><itunes:title>Ep 1</itunes:title><description>About</description>
    <itunes:summary>About it all at length</itunes:summary><itunes:duration>1:02:03</itunes:duration>
    <itunes:explicit>yes</itunes:explicit><itunes:image href="/ep1.jpg"/><itunes:keywords>a, b</itunes:keywords>
    <enclosure url="https://p.example/1.mp3" length="12345678901" type="audio/mpeg"/><guid>ep1</guid>
    <podcast:transcript url="https://p.example/1.srt" type="application/srt"/></item>
</channel></rss>"""

VIDEO = b"""<?xml version="1.0" encoding="UTF-8"?>
<feed xmlns:yt="http://www.youtube.com/xml/schemas/2015" xmlns:media="http://search.yahoo.com/mrss/"
  xmlns="http://www.w3.org/2005/Atom"><title>Channel</title><id>yt:channel:1</id>
 <entry><id>yt:video:1</id><yt:videoId>1</yt:videoId><title>Film</title>
  <link rel="alternate" href="https://v.example/watch?v=1"/><published>2021-09-06T10:00:00+00:00</published>
  <media:rating scheme="urn:simple">nonadult</media:rating><media:credit role="owner">All</media:credit>
  <media:group><media:title>Film</media:title>
   <media:content url="https://v.example/v/1" type="video/mp4" medium="video" width="640" height="390" duration="61"
     fileSize="100" bitrate="128.5" framerate="29.97" samplingrate="44.1" channels="2" expression="full" lang="en">
   </media:content>
   <media:content url="https://v.example/v/1.webm" isDefault="false">
    <media:credit role="actor" scheme="urn:ebu">Sue</media:credit><media:thumbnail url="/t2.jpg"/>
   </media:content>
   <media:thumbnail url="https://v.example/t.jpg" width="480" height="360" time="12:05:01.123"/>
   <media:text type="plain" lang="en" start="0:10" end="0:20">Hello</media:text>
   <media:restriction relationship="deny" type="country">au us</media:restriction>
   <media:copyright url="https://v.example/c">2021</media:copyright>
   <media:category scheme="urn:c" label="L">Arts</media:category><media:keywords>x, y</media:keywords>
   <media:description>What it shows</media:description>
   <media:community><media:starRating count="3" average="5.00"/></media:community>
  </media:group></entry></feed>"""

JSON = b"""{"version": "https://jsonfeed.org/version/1.1", "title": "J", "home_page_url": "https://j.example/",
 "feed_url": "https://j.example/feed.json", "description": "d", "icon": "/i.png", "favicon": "/f.ico", "language": "sv",
 "authors": [{"name": "Ann", "url": "https://a.example/"}], "hubs": [{"type": "WebSub", "url": "https://hub.example/"}],
 "items": [{"id": 7, "url": "/7", "external_url": "https://x.example/", "title": "T", "summary": "s",
   "content_html": "<a href=\\"y\\">y</a>", "content_text": "y", "image": "/7.png", "tags": ["a", "b", 3],
   "date_published": "2021-09-06T10:00:00+02:00", "date_modified": "2021-09-07T10:00:00Z", "language": "da",
   "attachments": [{"url": "/7.m4a", "mime_type": "audio/mp4", "size_in_bytes": 9,
     "duration_in_seconds": 66, "title": "m"}]},
  {"id": "8", "content_text": "plain", "author": {"name": "Old"}}, "nonsense"]}"""

# Only feedparser reads events.
RSS_WITH_EVENT = RSS.replace(
    b"  </item>",
    b"""<ev:startdate>2021-10-01T10:00:00Z</ev:startdate><ev:enddate>2021-10-01T12:00:00Z</ev:enddate>
    <ev:location>Hall</ev:location></item>""",
    1,
)
XML = {"rss": RSS, "atom": ATOM, "rdf": RDF, "podcast": PODCAST, "video": VIDEO}
