package chart

import (
	"bytes"
	"fmt"
	"html"
	"io"

	"github.com/tautline/tautline/tools/draw"
)

// Chart is what can be drawn.
type Chart interface{ Draw() *draw.Picture }

// Page writes an HTML page of text paragraphs and charts, which needs nothing
// else: no script, no font, no style sheet.
func Page(w io.Writer, title string, text []string, charts []Chart) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">"+
		"<title>%[1]s</title><style>body{max-width:50rem;margin:2rem auto;padding:0 1rem;font:16px/1.5 system-ui,sans-serif}svg{max-width:100%%;height:auto}pre{overflow-x:auto;font-size:13px}</style>\n<h1>%[1]s</h1>\n",
		html.EscapeString(title))
	for _, p := range text {
		fmt.Fprintf(&b, "<pre>%s</pre>\n", html.EscapeString(p))
	}
	for _, c := range charts {
		b.WriteString("<figure>")
		if err := c.Draw().SVG(&b); err != nil {
			return err
		}
		b.WriteString("</figure>\n")
	}
	b.WriteString("</html>\n")
	_, err := w.Write(b.Bytes())
	return err
}
