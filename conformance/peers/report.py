"""Results as Markdown tables and as a plot."""
from html import escape
from statistics import median

OURS = ("exattn exact", "exattn fast")
COLOURS = {
    "exattn exact": "#1a6fd4", "exattn fast": "#6db0f5", "ORT Attention": "#d9541e",
    "ORT MultiHeadAttention": "#f0995f", "ORT GroupQueryAttention": "#b3863b", "numpy naive": "#6f8f3a",
    "numpy tiled": "#a9bf6a", "torch": "#9560b8"}
# As in the plot of `exattn bench`: readable on white and, for whom that is set, on black.
STYLE = """<style>
  svg { background: #fff } text { font: 12px sans-serif; fill: #222 } .title { font-weight: bold }
  .value { font-size: 10px; fill: #555 } line { stroke: #999; stroke-dasharray: 3 3 }
  @media (prefers-color-scheme: dark) {
    svg { background: #16181c } text { fill: #e4e4e4 } .value { fill: #aaa } line { stroke: #777 }
  }
</style>
"""
LIMIT = 4.0  # bars of more than so many times the fastest peer's are cut off


def medians(result):
    return {name: median(found["times_ms"]) for name, found in result["contestants"].items()}


def best_peer(result):
    """The median of the fastest, or None."""
    return min((time for name, time in medians(result).items() if name not in OURS), default=None)


def names_of(results):
    return [name for name in COLOURS if any(name in result["contestants"] for result in results)]


def row(*cells):
    return "| " + " | ".join(str(cell) for cell in cells) + " |\n"


def time_cell(result, name):
    if name not in result["contestants"]:
        return ""
    times = result["contestants"][name]["times_ms"]
    return f"{median(times):.3f} ({min(times):.3f} to {max(times):.3f})"


def ratio_cell(result, ours):
    best, times = best_peer(result), medians(result)
    return f"{best / times[ours]:.2f}" if best and ours in times else ""


def markdown(report):
    results = report["results"]
    names = names_of(results)
    text = f"`{report['command']}` on {report['machine']}; {report['date']}. "
    text += ", ".join(f"{name} {version}" for name, version in report["versions"].items() if version)
    text += f"; exattn built by {report['compiler']}. "
    if report["missing"]:
        text += f"Not installed, so not measured: {', '.join(report['missing'])}. "
    text += (
        f"Rounds: {report['rounds']}; milliseconds are their medians (least to greatest). In a round, each runs once "
        "or, where calls are short, a few times for their mean. A ratio above 1 says that exattn is faster than the "
        "fastest of the others.")
    head = ["shape", "threads", *(name + ", ms" for name in names), "best peer / exact", "best peer / fast"]
    text += "\n\n" + row(*head) + row(*["---"] * len(head))
    for result in results:
        text += row(result["shape"], result["threads"], *(time_cell(result, name) for name in names),
                    *(ratio_cell(result, ours) for ours in OURS))
    text += "\nGreatest absolute error against the formula in float64, with any of the numbers of threads:\n\n"
    text += row("shape", *names) + row(*["---"] * (1 + len(names)))
    for shape in dict.fromkeys(result["shape"] for result in results):
        found = [result["contestants"] for result in results if result["shape"] == shape]
        errors = ([x[name]["max_abs_error"] for x in found if name in x] for name in names)
        text += row(shape, *(f"{max(each):.1e}" if each else "" for each in errors))
    return text


def svg(report):
    """A panel for each number of threads, a group of bars for each shape, times relative to the fastest peer's."""
    width, bar, top, unit = 440, 11, 76, 85  # a panel, a bar, where the first group begins, the length of 1
    names = names_of(report["results"])
    body, bottom = [], top

    def text(x, y, words, kind="name"):
        body.append(f'<text x="{x:.1f}" y="{y}" class="{kind}">{escape(words)}</text>')

    def rectangle(x, y, length, height, name):
        body.append(f'<rect x="{x}" y="{y}" width="{length:.1f}" height="{height}" fill="{COLOURS[name]}"/>')

    for i, name in enumerate(names):
        x, y = 10 + i % 4 * 200, 12 + i // 4 * 18
        rectangle(x, y, 11, 11, name)
        text(x + 16, y + 10, name)
    counts = list(dict.fromkeys(result["threads"] for result in report["results"]))
    for i, threads in enumerate(counts):
        left, y = 10 + i * width, top
        text(left, top - 12, f"{threads} thread{'s' * (threads > 1)}", "title")
        for result in report["results"]:
            best = best_peer(result)
            if result["threads"] != threads or not best:
                continue
            text(left, y + 12, f"{result['shape']} ({best:.{0 if best > 99 else 2}f} ms)")
            y += 17
            start = y
            for name, time in medians(result).items():
                length = min(time / best, LIMIT) * unit
                rectangle(left, y, length, bar - 1, name)
                end = unit if unit - 30 < length < unit else length  # no number on the line
                text(left + end + 4, y + 9, f"{time / best:.2f}" + " …" * (time / best > LIMIT), "value")
                y += bar
            body.append(f'<line x1="{left + unit}" y1="{start}" x2="{left + unit}" y2="{y}"/>')
            y += 8
        bottom = max(bottom, y)
    text(10, bottom + 16, "Time relative to the fastest of the others, whose time is in brackets: shorter is faster. "
         f"{report['machine']}; {report['date']}", "value")
    size = f"{max(820, width * len(counts) + 20)} {bottom + 24}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}">\n'
        + STYLE + "\n".join(body) + "\n</svg>\n")
