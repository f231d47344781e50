"""SCENES -> PAGES AND PICTURES: nodes and edges, laid out, as one HTML page or an SVG."""
