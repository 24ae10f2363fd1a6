"""Servers with known work, for benches/types and benches/contexts: Apache httpd with sites of 20 pages, PostgreSQL with
20 statements, MariaDB for its client. Each in a folder of its own, on the loopback interface; `Server.close` ends it by its process id.
`script` is another script of this folder, for those that take its servers.
"""
import glob, importlib.machinery, importlib.util, os, random, shutil, signal, socket, subprocess, sys, time

MODULES = "/usr/lib/apache2/modules"
QUIET = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def script(name):
    """A script of this folder, which has no ending, as a module."""
    path = f"{os.path.dirname(os.path.abspath(__file__))}/{name}"
    sys.dont_write_bytecode = True
    loader = importlib.machinery.SourceFileLoader(name, path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


class Missing(Exception):
    """Something needed is not here."""


def need(command, *more):
    for place in (command, *more):
        found = shutil.which(place)
        if found:
            return found
    raise Missing(f"{command} is not installed")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def until(what, seconds=20):
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            raise RuntimeError("a server did not start")
        time.sleep(0.05)


def listens(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


class Server:
    """A server and its load."""

    def __init__(self, main, port):
        self.main, self.port, self.clients = main, port, []

    def load(self, argv, **options):
        """Starts a client in a process group of its own."""
        self.clients.append(subprocess.Popen([str(a) for a in argv], start_new_session=True, **{**QUIET, **options}))

    def quiet(self):
        """Ends the clients."""
        for c in self.clients:
            if c.poll() is None:
                os.killpg(c.pid, signal.SIGTERM)
            c.wait()
        self.clients = []

    def close(self):
        self.quiet()
        self.main.send_signal(signal.SIGINT if self.fast else signal.SIGTERM)
        try:
            self.main.wait(20)
        except subprocess.TimeoutExpired:
            self.main.kill()
            self.main.wait()

    fast = False


WORDS = "page unit loop thread wait type cost path call time rest list made from with that have".split()


def text(size, seed):
    """HTML of about so many bytes, the same each time."""
    r, lines, have = random.Random(seed), [], 0
    while have < size:
        line = "<p>" + " ".join(r.choices(WORDS, k=12)) + "</p>"
        lines.append(line)
        have += len(line) + 1
    return "<html><body>\n" + "\n".join(lines) + "\n</body></html>\n"


# Path, and headers of the request. Kinds that real sites have.
PAGES = (
    [(f"/plain{n}.html", ()) for n in (1, 2, 3, 4, 5)]
    + [(f"/zip{n}.html", ("Accept-Encoding: gzip",)) for n in (1, 2, 3, 4)]
    + [(f"/parts{n}.shtml", ()) for n in (1, 2, 3)]
    + [("/few/", ()), ("/many/", ()), ("/script.cgi", ()), ("/form.cgi?name=value", ()), ("/missing.html", ())]
    + [("/moved", ()), ("/status", ()), ("/locked/page.html", ("Authorization: Basic dXNlcjpwYXNz",))]
)
SIZES = {"plain1": 1500, "plain2": 9000, "plain3": 30_000, "plain4": 90_000, "plain5": 250_000,
         "zip1": 4000, "zip2": 15_000, "zip3": 50_000, "zip4": 150_000}

# Sizes of the 20 static pages: those of examples of a style sheet's authors, about, which the paper took.
STATIC = [(f"/page{n}.html", ()) for n in range(20)]


# 20 pages of PHP, each with some work that pages do, of some milliseconds: name and body.
SCRIPTS = {
    "sorted": "$a = range(1, 9000); mt_srand(7); shuffle($a); sort($a); echo $a[10];",
    "compared": "$a = []; for ($i = 0; $i < 2500; $i++) $a[] = 'w' . ($i * 7919 % 2503); usort($a, fn($x, $y) => strcmp($x, $y)); echo $a[3];",
    "matched": "preg_match_all('/([a-z]+)-(\\d+)/', str_repeat('unit-17 loop-4711 wait ', 2500), $m); echo count($m[0]);",
    "replaced": "echo strlen(preg_replace_callback('/\\b(\\w)(\\w*)\\b/', fn($m) => strtoupper($m[1]) . $m[2], str_repeat('some words of a page ', 900)));",
    "encoded": "$a = []; for ($i = 0; $i < 4000; $i++) $a[] = ['id' => $i, 'name' => \"name $i\"]; echo strlen(json_encode($a));",
    "decoded": "$t = '[' . str_repeat('{\"id\":17,\"name\":\"a name\"},', 4000) . '0]'; echo count(json_decode($t, true));",
    "hashed": "$h = 'x'; for ($i = 0; $i < 4000; $i++) $h = hash('sha256', $h . 'a text that is hashed again and again'); echo $h;",
    "digested": "$h = 'x'; for ($i = 0; $i < 12000; $i++) $h = md5($h); echo $h;",
    "escaped": "$t = ''; for ($i = 0; $i < 6000; $i++) $t .= '<td>' . htmlspecialchars(\"<cell & \\\"$i\\\">\") . '</td>'; echo strlen($t);",
    "mapped": "$a = array_map(fn($x) => $x * $x % 97, range(1, 30000)); echo count(array_unique(array_filter($a, fn($x) => $x > 40)));",
    "dated": "date_default_timezone_set('UTC'); $n = 0; for ($i = 0; $i < 3000; $i++) $n += strlen(date('D, d M Y H:i:s', $i * 86400)); echo $n;",
    "printed": "$t = ''; for ($i = 0; $i < 9000; $i++) $t .= sprintf('%05d %-10s %8.3f', $i, 'row', $i / 7); echo strlen($t);",
    "parsed": "$n = 0; for ($i = 0; $i < 2500; $i++) $n += count(str_getcsv('1,\"two, three\",4,five,6,\"seven\"')); echo $n;",
    "serialized": "$a = []; for ($i = 0; $i < 6000; $i++) $a[\"k$i\"] = [$i, 'v']; echo count(unserialize(serialize($a)));",
    "distant": "$n = 0; for ($i = 0; $i < 120; $i++) $n += levenshtein(str_repeat('kitten', 20), str_repeat('sitting', 17)); echo $n;",
    "compressed": "echo strlen(gzcompress(implode(' ', range(1, 9000)), 6));",
    "wrapped": "$n = 0; for ($i = 0; $i < 60; $i++) $n += strlen(nl2br(wordwrap(str_repeat('words in a row ', 400), 70, \"\\n\", true))); echo $n;",
    "transformed": "$t = str_repeat('some bytes', 900); for ($i = 0; $i < 150; $i++) $t = strrev(base64_decode(base64_encode($t))); echo crc32($t);",
    "recursed": "$fib = function ($n) use (&$fib) { return $n < 2 ? $n : $fib($n - 1) + $fib($n - 2); }; echo $fib(21);",
    "split": "$t = str_repeat('key=value;', 6000); $n = 0; foreach (explode(';', $t) as $p) $n += count(explode('=', $p)); echo $n;",
}
PHP = [(f"/{name}.php", ()) for name in SCRIPTS]


def site(folder):
    """Writes the files of the 20 pages of each kind."""
    root = f"{folder}/site"
    for sub in ("few", "many", "locked", "inc"):
        os.makedirs(f"{root}/{sub}", exist_ok=True)

    def write(name, what, mode=0o644):
        with open(f"{root}/{name}", "w") as f:
            f.write(what)
        os.chmod(f"{root}/{name}", mode)

    for name, size in SIZES.items():
        write(f"{name}.html", text(size, name))
    for n in range(20):
        write(f"page{n}.html", text(2000 + 1200 * n, f"page{n}"))
    for n in range(24):
        write(f"inc/part{n}.html", text(400 + 100 * n, f"part{n}"))
    for n, parts in ((1, 2), (2, 8), (3, 24)):
        of = "\n".join(f'<!--#include virtual="/inc/part{i}.html" -->' for i in range(parts))
        write(f"parts{n}.shtml", f'<!--#set var="a" value="1" --><html>{of}<!--#echo var="DATE_LOCAL" --></html>')
    for folder_of, files in (("few", 8), ("many", 80)):
        for n in range(files):
            write(f"{folder_of}/file{n:03}.txt", text(100 * n, f"{n}"))
    write("locked/page.html", text(5000, "locked"))
    for name, body in (("script", "echo hello"), ("form", "IFS='&'; for p in $QUERY_STRING; do echo \"$p\"; done")):
        write(f"{name}.cgi", f"#!/bin/sh\necho 'Content-Type: text/plain'; echo\n{body}\n", 0o755)
    for name, body in SCRIPTS.items():
        write(f"{name}.php", f"<?php for ($round = 0; $round < 4; $round++) {{ {body} }}")
    # The password "pass", as `openssl passwd -apr1` has it.
    apr1 = subprocess.run(["openssl", "passwd", "-apr1", "-salt", "saltsalt", "pass"], capture_output=True, text=True)
    write("../passwords", f"user:{apr1.stdout.strip()}\n")


def apache(folder, mpm="prefork", processes=6, pages=PAGES):
    """Apache httpd with the site; `mpm` is prefork, worker or event."""
    httpd, port = need("apache2", "/usr/sbin/apache2", "httpd"), free_port()
    site(folder)
    os.chmod(folder, 0o755)
    # Files of its own: functions of files that other programs execute, too, are not probed.
    own = f"{folder}/bin"
    os.makedirs(own, exist_ok=True)
    httpd = shutil.copy(httpd, f"{own}/httpd")
    modules = "authz_core authz_user authz_host authn_core authn_file auth_basic dir mime deflate filter include autoindex "
    modules += f"alias status env setenvif {'cgi' if mpm == 'prefork' else 'cgid'} mpm_{mpm}"
    for m in modules.split():
        shutil.copy(f"{MODULES}/mod_{m}.so", own)
    php = ""
    if pages is PHP:
        have = sorted(glob.glob(f"{MODULES}/libphp*.so"))
        if not have:
            raise Missing("libapache2-mod-php is not installed")
        php = f"LoadModule php_module {shutil.copy(have[-1], own)}\nAddHandler application/x-httpd-php .php"
    loads = "\n".join(f"LoadModule {m}_module {own}/mod_{m}.so" for m in modules.split())
    size = f"StartServers {processes}\nMinSpareServers {processes}\nMaxSpareServers {processes}\nMaxRequestWorkers {processes}\nServerLimit {processes}"
    if mpm != "prefork":
        size = "StartServers 1\nThreadsPerChild 8\nMaxRequestWorkers 8\nServerLimit 1"
    with open(f"{folder}/httpd.conf", "w") as f:
        f.write(f"""
ServerRoot {folder}
{loads}
{php}
Listen 127.0.0.1:{port}
PidFile {folder}/pid
ServerName localhost
ErrorLog {folder}/error.log
User www-data
Group www-data
{size}
MaxConnectionsPerChild 0
KeepAlive On
TypesConfig /etc/mime.types
DocumentRoot {folder}/site
ScriptSock {folder}/cgisock
Redirect /moved /plain1.html
<Directory {folder}/site>
  Options +Indexes +Includes +ExecCGI
  Require all granted
  AddHandler cgi-script .cgi
  AddType text/html .shtml
  AddOutputFilter INCLUDES .shtml
  IndexOptions FancyIndexing
</Directory>
<FilesMatch "^zip"> 
  SetOutputFilter DEFLATE
</FilesMatch>
<Location /status>
  SetHandler server-status
</Location>
<Directory {folder}/site/locked>
  AuthType Basic
  AuthName locked
  AuthUserFile {folder}/passwords
  Require valid-user
</Directory>
""".replace(f"ScriptSock {folder}/cgisock\n", "" if mpm == "prefork" else f"ScriptSock {folder}/cgisock\n"))
    main = subprocess.Popen([httpd, "-f", f"{folder}/httpd.conf", "-DFOREGROUND"], start_new_session=True, **{**QUIET, "stderr": None})
    until(lambda: listens(port))
    server = Server(main, port)
    server.pages = [(f"http://127.0.0.1:{port}{path}", headers) for path, headers in pages]
    return server


def browse(server, clients=4, each=10):
    """Fetches all pages with so many clients at a time (`ab -c`), one kind after the other, over and over."""
    ab = need("ab")
    lines = []
    for url, headers in server.pages:
        asked = " ".join(f"-H '{h}'" for h in headers)
        lines.append(f"{ab} -q -l -n {each} -c {clients} {asked} '{url}' > /dev/null 2>&1")
    server.load(["sh", "-c", "while :; do\n" + "\n".join(lines) + "\ndone"])


STATEMENTS = {
    "one by key": "SELECT abalance FROM pgbench_accounts WHERE aid = :aid;",
    "range by key": "SELECT sum(abalance) FROM pgbench_accounts WHERE aid BETWEEN :aid AND :aid + 999;",
    "top of sort": "SELECT aid FROM pgbench_accounts WHERE aid BETWEEN :aid AND :aid + 1999 ORDER BY filler, aid DESC LIMIT 10;",
    "full count": "SELECT count(*) FROM small;",
    "filtered scan": "SELECT count(*) FROM small WHERE note LIKE '%17%';",
    "group": "SELECT kind, count(*), avg(value) FROM small GROUP BY kind;",
    "hash join": "SELECT count(*) FROM small s JOIN kinds k ON k.kind = s.kind WHERE k.weight > 3;",
    "nested loop": "SELECT k.name, a.abalance FROM kinds k JOIN pgbench_accounts a ON a.aid = k.kind WHERE k.kind < 40;",
    "window": "SELECT sum(r) FROM (SELECT rank() OVER (PARTITION BY kind ORDER BY value) r FROM small WHERE id < 3000) x;",
    "distinct": "SELECT count(DISTINCT value) FROM small WHERE id < 5000;",
    "recursion": "WITH RECURSIVE t(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM t WHERE n < 500) SELECT sum(n) FROM t;",
    "series": "SELECT sum(g) FROM generate_series(1, 4000) g;",
    "pattern": "SELECT count(*) FROM small WHERE id < 1500 AND note ~ 'a[0-9]+7';",
    "json": "SELECT json_agg(s) FROM (SELECT * FROM small WHERE id < 400) s;",
    "array": "SELECT array_length(array_agg(id), 1) FROM small WHERE id < 3000;",
    "update one": "UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = :aid;",
    "insert one": "INSERT INTO log (aid, at) VALUES (:aid, now());",
    "numeric": "SELECT sum(sqrt(n::numeric)) FROM generate_series(1, 200) n;",
    "subquery": "SELECT count(*) FROM kinds k WHERE EXISTS (SELECT 1 FROM small s WHERE s.id = k.kind AND s.value > 10);",
    "digest": "SELECT count(md5(note)) FROM small WHERE id < 2000;",
}
SCHEMA = """
CREATE TABLE small AS SELECT i AS id, i % 37 AS kind, (i * 7919) % 1000 AS value, 'note a' || i AS note
  FROM generate_series(1, 10000) i;
CREATE INDEX ON small (id);
CREATE TABLE kinds AS SELECT i AS kind, 'kind ' || i AS name, i % 7 AS weight FROM generate_series(0, 200) i;
CREATE UNLOGGED TABLE log (aid int, at timestamptz);
VACUUM ANALYZE;
"""


def postgres(folder, work=STATEMENTS, mode="prepared"):
    """PostgreSQL with pgbench's tables and some of its own; the statements as scripts for pgbench."""
    bins = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
    if not bins:
        raise Missing("postgresql is not installed")
    at, port, data = bins[-1], free_port(), f"{folder}/pg"
    user = "postgres" if os.geteuid() == 0 else None
    options = {"user": user, "cwd": folder} if user else {"cwd": folder}
    os.makedirs(data, exist_ok=True)
    os.chmod(folder, 0o755)
    if user:
        shutil.chown(data, user)
    subprocess.run([f"{at}/initdb", "-D", data, "-A", "trust", "-U", "bench", "--no-sync"], check=True, **QUIET, **options)
    settings = {"fsync": "off", "autovacuum": "off", "max_parallel_workers_per_gather": "0", "jit": "off",
                "checkpoint_timeout": "1h", "shared_buffers": "256MB", "unix_socket_directories": "", "port": port}
    more = [a for k, v in settings.items() for a in ("-c", f"{k}={v}")]
    main = subprocess.Popen([f"{at}/postgres", "-D", data, *more], start_new_session=True, **QUIET, **options)
    until(lambda: listens(port))
    env = {**os.environ, "PGHOST": "127.0.0.1", "PGPORT": str(port), "PGUSER": "bench", "PGDATABASE": "postgres"}
    pgbench, psql = need("pgbench", f"{at}/pgbench"), need("psql", f"{at}/psql")
    server = Server(main, port)
    server.fast, server.env = True, env
    until(lambda: subprocess.run([psql, "-c", "select 1"], env=env, **QUIET).returncode == 0)
    subprocess.run([pgbench, "-i", "-q", "-s", "1"], env=env, check=True, **QUIET)
    subprocess.run([psql, "-v", "ON_ERROR_STOP=1", "-c", "", *sum((["-c", s] for s in SCHEMA.strip().split(";") if s.strip()), [])],
                   env=env, check=True, **QUIET)
    server.scripts = []
    for name, sql in work.items():
        path = f"{folder}/{name.replace(' ', '-')}.sql"
        with open(path, "w") as f:
            f.write(f"\\set aid random(1, 90000)\n{sql}\n")
        server.scripts.append(path)
    server.argv = [pgbench, "-n", "-M", mode]
    return server


def query(server, clients=4):
    """All statements with so many sessions, drawn at random, until it is ended."""
    argv = [*server.argv, "-c", clients, "-j", 1, "-T", 100_000]
    for s in server.scripts:
        argv += ["-f", s]
    server.load(argv, env=server.env)


QUERIES = [
    "SELECT id FROM t WHERE id = 77;", "SELECT * FROM t WHERE id < 40;", "SELECT kind, COUNT(*) FROM t GROUP BY kind;",
    "SELECT * FROM t ORDER BY pad LIMIT 20;", "SELECT COUNT(*) FROM t a JOIN t b ON a.kind = b.id;", "SELECT 1/0, NULL, 'text', 2.5, NOW();",
    "UPDATE t SET value = value + 1 WHERE id = 9;", "INSERT INTO t SELECT MAX(id) + 1, 1, 1, 'new' FROM t;", "DELETE FROM t WHERE id > 5000;",
    "SHOW TABLES;", "DESCRIBE t;", "SHOW STATUS LIKE 'Com_s%';", "SELECT wrong FROM t;", "BEGIN;", "COMMIT;", "SET @v = 3;", "SELECT @v;",
    "EXPLAIN SELECT * FROM t WHERE id = 3;", "status", "use d", "SELECT * FROM t WHERE id < 5\\G", "delimiter //", "SELECT 2//", "delimiter ;",
    "-- a remark", "SELECT REPEAT('x', 3000);", "SELECT HEX('abc'), CAST('7' AS UNSIGNED), JSON_ARRAY(1, 2);", "warnings", "SHOW CREATE TABLE t;",
]


def mariadb(folder):
    """MariaDB with one table; `server.client` is what starts its client program."""
    need("mariadbd", "/usr/sbin/mariadbd")
    data, sock = f"{folder}/data", f"{folder}/s"
    common = ["--no-defaults", f"--datadir={data}", "--user=root"]
    install = need("mariadb-install-db")
    subprocess.run([install, *common, "--auth-root-authentication-method=normal"], check=True, **QUIET)
    main = subprocess.Popen(["mariadbd", *common, f"--socket={sock}", "--skip-networking", f"--pid-file={folder}/pid"],
                            start_new_session=True, **QUIET)
    until(lambda: os.path.exists(sock))
    server = Server(main, 0)
    server.client = [need("mariadb", "mysql"), "--no-defaults", "-uroot", f"--socket={sock}", "--force", "--table", "--unbuffered"]
    fill = ("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, kind INT, value INT, pad VARCHAR(60));"
            "INSERT INTO d.t SELECT seq, seq % 37, seq * 7919 % 1000, CONCAT('pad ', seq) FROM d.seq_1_to_3000;")
    subprocess.run([*server.client, "-e", fill], check=True, **QUIET)
    return server
