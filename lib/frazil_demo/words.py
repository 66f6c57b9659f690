"""The words of the demo's shop: names, firms, products and remarks."""

FIRST_NAMES = (
    "Ada", "Amélie", "Björn", "Carmen", "Dmitri", "Elif", "Fatima", "Grace", "Hiroshi", "Inés", "Jakub", "Keiko", "Lars", "Mei",
    "Noor", "Olga", "Priya", "Rosa", "Søren", "Zoë",
)  # fmt: skip
LAST_NAMES = (
    "Abebe", "Andersson", "Becker", "Castillo", "Dubois", "Eriksen", "Fischer", "García", "Hughes", "Ito", "Jansen", "Kowalski",
    "Larsen", "Moreau", "Nakamura", "Okafor", "Petrova", "Rossi", "Tanaka", "Yılmaz",
)  # fmt: skip
PLACES = ("Alster", "Baltic", "Cedar", "Delta", "Fjord", "Harbour", "Meadow", "Nordic", "Riverside", "Summit")
FIRMS = ("Bakery", "Cycles", "Design Studio", "Garden Supplies", "Interiors", "Logistics", "Outfitters", "Press")
MATERIALS = ("Ash", "Birch", "Ceramic", "Copper", "Cotton", "Glass", "Linen", "Oak", "Steel", "Wool")
THINGS = (
    "Bookshelf", "Bread Knife", "Candle Holder", "Carafe", "Cushion", "Desk Lamp", "Door Mat", "Fruit Bowl", "Kettle", "Side Table",
    "Stool", "Tea Towel", "Throw Blanket", "Vase", "Wall Clock",
)  # fmt: skip
USES = ("for the kitchen", "for the hall", "for the garden", "for small rooms", "for two", "for the desk")
REMARKS = (
    "leave at the door", "gift wrap, please", "call before delivery", "deliver after 5 pm", "second floor", "invoice by email",
    "birthday present", "ring twice",
)  # fmt: skip
NOTES = ("prefers email", "prefers phone", "met at the trade fair", "pays early", "moved in spring", "asks for samples", "repeat buyer")  # fmt: skip
