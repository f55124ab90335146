"""The world around the example: a post office (SMTP), and an office with an inbox and a bank (HTTP).

    office.py post PORT         keeps every mail; with a file `hold` there, it keeps the mail to whom
                                that names, and never answers
    office.py office PORT       shows the inbox, takes orders to pay
    office.py arrive PORT       five suppliers send their invoices
    office.py reckon            what is in the books, at the bank and in the post

A server on port 0 takes a free one. It says which in the file `post.port` or `office.port`.
"""

import asyncio, json, mailbox, pathlib, smtplib, sqlite3, sys, threading
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SUPPLIERS = [
    ("amber", "A-2041", "Total: 310.00 EUR"),
    ("birch", "2026/77", "Total: EUR 1180.50"),
    ("cedar", "C-9", "Total: 48.20 EUR"),
    ("delta", "D-1203", "Total: 905.00 EUR"),
    ("ember", "E-55", "Total: EUR 67.10"),
]
PAYMENTS = pathlib.Path("payments")


def mails(wanted):
    """The mails to one address, or to all others."""
    kept = mailbox.Maildir("mail")
    found = [kept[key] for key in sorted(kept.keys())]
    return [mail for mail in found if (mail["To"] == "books@example.org") == wanted]


def announce(name, port):
    """Says which port a server has, all at once."""
    draft = pathlib.Path(f"{name}.draft")
    draft.write_text(str(port))
    draft.rename(f"{name}.port")


def post(port):
    from aiosmtpd.handlers import Mailbox
    from aiosmtpd.smtp import SMTP

    class Keeper(Mailbox):
        async def handle_DATA(self, server, session, envelope):
            answer = await super().handle_DATA(server, session, envelope)
            hold = pathlib.Path("hold")
            if hold.exists() and hold.read_text().strip() in envelope.rcpt_tos:
                hold.rename("held")
                threading.Event().wait()
            return answer

    async def serve():
        keeper, loop = Keeper("mail"), asyncio.get_running_loop()
        server = await loop.create_server(lambda: SMTP(keeper), "127.0.0.1", port)
        announce("post", server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())


def office(port):
    PAYMENTS.mkdir(exist_ok=True)

    class Office(BaseHTTPRequestHandler):
        def answer(self, status, body):
            said = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def do_GET(self):
            if self.path != "/inbox":
                return self.answer(404, {})
            seen = [{"id": mail["Message-ID"].strip("<>"), "from": mail["From"], "subject": mail["Subject"],
                     "text": mail.get_payload()} for mail in mails(True)]
            self.answer(200, sorted(seen, key=lambda mail: mail["id"]))

        def do_POST(self):
            order = json.loads(self.rfile.read(int(self.headers["content-length"])))
            nth = len(list(PAYMENTS.iterdir())) + 1
            (PAYMENTS / f"{nth}").write_text(json.dumps(order))
            self.answer(201, {"payment": f"payment {nth}"})

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Office)
    announce("office", server.server_port)
    server.serve_forever()


def arrive(port):
    with smtplib.SMTP("127.0.0.1", port) as smtp:
        for name, number, total in SUPPLIERS:
            mail = EmailMessage()
            mail["From"], mail["To"] = f"billing@{name}.example", "books@example.org"
            mail["Subject"], mail["Message-ID"] = f"Invoice {number}", f"<{name}.{number}@{name}.example>"
            mail.set_content(f"Dear friends,\n\nfor our work in October.\n\n{total}\n")
            smtp.send_message(mail)
            print(f"{mail['From']}: {mail['Subject']}, {total}")


def reckon():
    rows = sqlite3.connect("hapax.db").execute("SELECT number, sender, amount FROM invoice").fetchall()
    orders = [json.loads(order.read_text()) for order in PAYMENTS.iterdir()]
    letters = [mail["To"] for mail in mails(False)]
    print(f"{'NUMBER':9}{'AMOUNT':>8}  ROWS  PAYMENTS  MAILS")
    for name, number, _ in SUPPLIERS:
        sender = f"billing@{name}.example"
        booked = [amount for row, _, amount in rows if row == number]
        paid = [order for order in orders if order["reference"] == number]
        print(f"{number:9}{booked[0]:>8}  {len(booked):<4}  {len(paid):<8}  {letters.count(sender)}")


verb, *rest = sys.argv[1:]
{"post": post, "office": office, "arrive": arrive, "reckon": reckon}[verb](*map(int, rest))
