"""The shop's tables. No foreign keys: the workload changes keys at will."""

DDL = """
CREATE SCHEMA shop;
CREATE TYPE shop.tier AS ENUM ('bronze', 'silver', 'gold');
CREATE TYPE shop.order_status AS ENUM ('open', 'paid', 'shipped', 'closed');
CREATE TABLE shop.customers (
    customer_id bigint PRIMARY KEY,
    email varchar(120) NOT NULL,
    full_name text NOT NULL,
    company varchar(80),
    country char(2) NOT NULL,
    tier shop.tier NOT NULL,
    credit_limit numeric(12,2),
    balance numeric(18,4) NOT NULL,
    score real,
    rating double precision,
    vip boolean NOT NULL,
    born date,
    notes text,
    preferences jsonb,
    created_at timestamptz NOT NULL,
    updated_at timestamp
);
CREATE TABLE shop.products (
    sku text PRIMARY KEY,
    name varchar(100) NOT NULL,
    description text,
    price numeric(12,2) NOT NULL,
    weight_kg real,
    volume_l double precision,
    attributes json,
    category_ids int[],
    thumbnail bytea,
    active boolean NOT NULL,
    sold_since date,
    stock_code char(8)
);
CREATE TABLE shop.orders (
    order_id int PRIMARY KEY,
    customer_id bigint NOT NULL,
    status shop.order_status NOT NULL,
    ordered_at timestamptz NOT NULL,
    ship_after time,
    promised_on date,
    delivered_in interval,
    remark text,
    client_ip inet,
    total numeric(14,2)
);
CREATE TABLE shop.order_lines (
    order_id int,
    line_no smallint,
    sku text NOT NULL,
    quantity int NOT NULL,
    unit_price numeric(12,2) NOT NULL,
    discount real,
    note varchar(200),
    gift boolean,
    PRIMARY KEY (order_id, line_no)
);
CREATE TABLE shop.payments (
    payment_id uuid PRIMARY KEY,
    order_id int NOT NULL,
    amount numeric(12,2) NOT NULL,
    fee numeric(20,8),
    method varchar(20) NOT NULL,
    paid_at timestamp,
    card_digest bytea,
    refunded boolean,
    reference uuid
);
CREATE TABLE shop.inventory (
    warehouse text,
    bin int,
    sku text NOT NULL,
    on_hand int NOT NULL,
    reserved bigint,
    counted_at timestamptz,
    temperature_c double precision,
    checked_at time,
    PRIMARY KEY (warehouse, bin)
);
CREATE TABLE shop.events (
    event_id int PRIMARY KEY,
    kind varchar(20) NOT NULL,
    session_id uuid,
    happened_at timestamp NOT NULL,
    payload jsonb,
    raw text,
    small smallint,
    medium int,
    large bigint,
    ratio4 real,
    ratio8 double precision,
    amount numeric(38,10),
    on_day date,
    seen_at timestamptz,
    at_clock time,
    body bytea,
    flag boolean,
    code char(6),
    address inet,
    span interval,
    numbers int[]
);
"""

TABLES = ("customers", "products", "orders", "order_lines", "payments", "inventory", "events")

COMMENTS = {
    "shop.customers": "People and firms that order",
    "shop.customers.customer_id": "Number of the customer",
    "shop.customers.company": "Firm, if any",
    "shop.customers.country": "ISO 3166 code",
    "shop.customers.credit_limit": "Euro; null: none agreed",
    "shop.customers.created_at": "Instant of registration",
    "shop.customers.updated_at": "Wall-clock time of the last change",
    "shop.products": "What is sold, by stock keeping unit",
    "shop.products.sku": "Stock keeping unit: a text key with spaces, quotes, commas",
    "shop.products.price": "Euro, tax included",
    "shop.products.thumbnail": "Raw bytes, possibly none",
    "shop.products.stock_code": "Blank-padded code",
    "shop.orders": "One row per order",
    "shop.orders.order_id": "Number of the order",
    "shop.orders.ordered_at": "Instant of the order",
    "shop.orders.delivered_in": "Time to delivery",
    "shop.orders.total": "Euro",
    "shop.order_lines": "Lines of orders: a composite key",
    "shop.order_lines.order_id": "The order",
    "shop.order_lines.line_no": "Place within the order",
    "shop.order_lines.discount": "Share of the price",
    "shop.payments": "Money received: a uuid key",
    "shop.payments.payment_id": "Number of the payment",
    "shop.payments.fee": "Euro, to the hundred-millionth",
    "shop.payments.paid_at": "Wall-clock time of the booking",
    "shop.inventory": "Stock by warehouse and bin: a composite key of text and number",
    "shop.inventory.warehouse": "Name of the warehouse",
    "shop.inventory.bin": "Number of the bin",
    "shop.inventory.reserved": "Pieces promised; may be negative",
    "shop.events": "What visitors did: every common type, with extreme values",
    "shop.events.event_id": "Number of the event",
    "shop.events.happened_at": "Wall-clock time",
    "shop.events.seen_at": "Instant",
}
