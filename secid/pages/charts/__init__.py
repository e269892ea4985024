"""Small charts as inline SVG: no script, no request, drawn to be read with styles off and in the dark."""
