package index

import (
	"math"
	"strconv"
	"strings"
)

// maxPageTokens bounds page_tokens so that (position+1)*page_tokens can't
// overflow; no prefix has so many tokens.
const maxPageTokens = math.MaxInt32

// element returns the place of an element of a field that is an array.
func (f fields) element(key string, i int) string {
	return f.at(key) + "[" + strconv.Itoa(i) + "]"
}

// parseGroups reads page_groups.
func (m *Manifest) parseGroups(f fields) error {
	byName := make(map[string]int)
	return f.each("page_groups", func(i int, element []byte) error {
		if i == MaxGroups {
			return invalidf("page_groups has more than %d groups", MaxGroups)
		}
		gf, err := newFields(f.element("page_groups", i), element)
		if err != nil {
			return err
		}
		g, err := m.parseGroup(gf)
		if err != nil {
			return err
		}
		if first, ok := byName[g.Name]; ok {
			return invalidf("%s is %s, the name of page_groups[%d]", gf.at("name"), quoteCut(g.Name), first)
		}
		byName[g.Name] = i
		m.Groups = append(m.Groups, g)
		m.rawGroups = append(m.rawGroups, gf.object)
		return nil
	})
}

func (m *Manifest) parseGroup(f fields) (g Group, err error) {
	if g.Name, err = f.text("name", 1, maxNameBytes); err != nil {
		return g, err
	}
	if g.Name[0] == '.' || strings.ContainsAny(g.Name, "/\x00") {
		return g, invalidf("%s is %s: the name of a group must not begin with a dot or contain a slash or NUL", f.at("name"), quoteCut(g.Name))
	}
	role, err := f.oneOf("role", string(RoleAttention), string(RoleRecurrent), string(RoleAuxiliary))
	if err != nil {
		return g, err
	}
	g.Role = Role(role)
	if g.Role == RoleAttention {
		n, err := f.integer("page_tokens", 1, maxPageTokens)
		if err != nil {
			return g, err
		}
		g.PageTokens = int(n)
	}
	if g.PageBytes, err = f.integer("page_bytes", 1, MaxPageBytes); err != nil {
		return g, err
	}
	g.Positions, err = parsePositions(f)
	if err != nil {
		return g, err
	}
	if count := len(g.Positions); g.Role == RoleAttention && count > 0 {
		last := g.Positions[count-1]
		if int64(last)*int64(g.PageTokens) >= int64(m.NumTokens) {
			return g, invalidf("%s has %d, but the pages of %d tokens end at position %d with %d tokens",
				f.at("positions"), last, g.PageTokens, (m.NumTokens-1)/g.PageTokens, m.NumTokens)
		}
	}
	return g, nil
}

func parsePositions(f fields) ([]uint32, error) {
	v, err := f.raw("positions")
	if err != nil {
		return nil, err
	}
	positions := make([]uint32, 0, min(countCommas(v)+1, MaxPositions))
	err = f.each("positions", func(i int, element []byte) error {
		if i == MaxPositions {
			return invalidf("%s has more than %d positions", f.at("positions"), MaxPositions)
		}
		pos, ok := rawInt(element)
		if !ok || pos < 0 || pos > math.MaxUint32 {
			return invalidf("%s must be an integer from 0 to %d, not %s", f.element("positions", i), uint32(math.MaxUint32), cutValue(element))
		}
		if i > 0 && uint32(pos) <= positions[i-1] {
			return invalidf("%s is %d, which does not come after %d", f.element("positions", i), pos, positions[i-1])
		}
		positions = append(positions, uint32(pos))
		return nil
	})
	return positions, err
}

// boundary returns n of the key of the i-th position of a group: the tokens
// that its page depends on.
func (m *Manifest) boundary(g *Group, i int) int {
	if g.Role != RoleAttention {
		return m.NumTokens
	}
	return int(min((int64(g.Positions[i])+1)*int64(g.PageTokens), int64(m.NumTokens)))
}
