"""Tool results: records as JSON, CSV and logs, asked for by name, by place, by value."""

import json
import random

from evals.words import CITIES, GOODS, PEOPLE, Json, Writer, asks, says, step

BUDGETS = (1000, 2000, 4000)
NEAR = 250


def tools() -> Writer:
    """Each history holds orders as JSON, stock as CSV, and a log; every question asks for one of them."""
    suite = Writer("tools", BUDGETS)
    for number in range(3):
        rng = random.Random(100 + number)
        orders, stock, log = _orders(rng), _stock(rng), _log(rng)
        messages = [
            {"role": "system", "content": "You help the staff of a shop. Answer from the tools' results."},
            asks("Show me the latest orders."),
            *step(
                "c1",
                "list_orders",
                '{"limit": 60}',
                json.dumps({"orders": orders}, indent=2 * number or None, ensure_ascii=False),
            ),
            says("There are sixty of them."),
            asks("And what is in stock?"),
            *step("c2", "list_stock", "{}", "\n".join(["sku,name,city,count,price", *map(_row, stock)])),
            says("That is all that is in stock."),
            asks("Did anything go wrong last night?"),
            *step("c3", "read_log", '{"since": "yesterday"}', "\n".join(log)),
            says("A few requests failed."),
        ]
        _ask(suite, rng, suite.history(messages), orders, stock, log)
    return suite


def _ask(suite: Writer, rng: random.Random, name: str, orders: list[Json], stock: list[Json], log: list[str]) -> None:
    order, item = rng.choice(orders[5:50]), rng.choice(stock[5:40])
    where = {"history": name}
    suite.case("lookup", f"What is the status of order {order['id']}?", [_of(order, "status")], **where)
    suite.case("lookup", f"How many of {item['sku']} are in stock?", [_in_row(item, "count")], **where)
    line = rng.choice([each for each in log if "ERROR" in each])
    suite.case("lookup", f"What went wrong with request {line.split()[3]}?", [line], **where)
    suite.case("position", "Which order came third in the list?", [_of(orders[2], "customer")], **where)
    suite.case("position", "What was the last item in the stock list?", [_in_row(stock[-1], "name")], **where)
    dearest = max(stock, key=lambda each: each["price"])
    suite.case("superlative", "Which item in stock has the highest price?", [_in_row(dearest, "price")], **where)
    largest = max(orders, key=lambda each: each["total"])
    suite.case("superlative", "Which of the orders has the largest total?", [_of(largest, "total")], **where)
    one, other = rng.sample(orders, 2)
    question = f"Which cost more, order {one['id']} or order {other['id']}?"
    suite.case("comparison", question, [_of(one, "total"), _of(other, "total")], **where)
    needed: list[Json | str] = [_of(order, "sku"), _in_row(_item(stock, order["sku"]), "city")]
    suite.case("two-hop", f"In which city is the item of order {order['id']} stored?", needed, **where)
    extra = [asks(f"Tell me about order {one['id']}."), says(f"It was placed by {one['customer']}.")]
    suite.case("anaphora", "And what is its total?", [_of(one, "total")], extra=extra, **where)


def _orders(rng: random.Random) -> list[Json]:
    totals = rng.sample(range(1000, 90_000), 60)
    return [
        {
            "id": f"ORD-{rng.randrange(10_000):04}-{n:02}",
            "customer": rng.choice(PEOPLE),
            "sku": f"SKU-{rng.randrange(45):03}",
            "status": rng.choice(("paid", "shipped", "returned", "waiting for the supplier")),
            "total": totals[n] / 100,
            "note": f"Deliver to {rng.choice(CITIES)}, ring twice",
        }
        for n in range(60)
    ]


def _stock(rng: random.Random) -> list[Json]:
    prices = rng.sample(range(500, 20_000), 45)
    return [
        {
            "sku": f"SKU-{n:03}",
            "name": f"{rng.choice(GOODS)} no. {n}",
            "city": CITIES[n % len(CITIES)],
            "count": rng.randrange(100, 999),
            "price": prices[n] / 100,
        }
        for n in range(45)
    ]


def _log(rng: random.Random) -> list[str]:
    lines = []
    for number in range(150):
        level = "ERROR" if number % 29 == 7 else "INFO"
        request = f"req-{rng.randrange(16**6):06x}"
        what = (
            rng.choice(("payment refused by the bank", "printer out of paper", "address not found"))
            if level == "ERROR"
            else "ok"
        )
        lines.append(
            f"2026-03-14 02:{number // 60:02}:{number % 60:02} {level} {request} {what} after {rng.randrange(900)} ms"
        )
    return lines


def _row(item: Json) -> str:
    return ",".join(str(value) for value in item.values())


def _item(stock: list[Json], sku: str) -> Json:
    return next(item for item in stock if item["sku"] == sku)


def _of(order: Json, field: str) -> Json:
    return {"key": order["id"], "val": str(order[field]), "field": field, "within": NEAR}


def _in_row(item: Json, field: str) -> Json:
    return {"key": item["sku"], "val": str(item[field]), "within": 60}
