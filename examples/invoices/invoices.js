// Pays the invoices that came by mail: a row in the books, an order to the bank, a mail to who sent it.
const { body: inbox } = await office.get({ url: "inbox" });
for (const mail of inbox) {
  await withItem(mail.id, mail.subject, async (ctx) => {
    if (ctx.item.isDone) return;
    const number = mail.subject.replace("Invoice ", "");
    const [, amount] = mail.text.match(/^Total: (\d+\.\d\d) EUR$/m);
    await books.execute({
      id: "booked",
      statements: [
        { sql: "CREATE TABLE IF NOT EXISTS invoice (number TEXT, sender TEXT, amount TEXT)" },
        { sql: "INSERT INTO invoice VALUES (?1, ?2, ?3)", params: [number, mail.from, amount] },
      ],
    });
    const paid = await office.post({ url: "payments", body: { to: mail.from, reference: number, amount } });
    const text = `We have paid ${amount} EUR for ${number}: ${paid.body.payment}.\n`;
    await post.send({ to: mail.from, subject: `Paid: ${number}`, text });
    console.log(`paid ${amount} EUR for ${number}`);
  });
}
