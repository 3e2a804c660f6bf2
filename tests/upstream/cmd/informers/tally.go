package main

import (
	"maps"
	"sync"
)

const keptTexts = 50

// tally counts texts. It keeps the counts of the first 50 distinct texts.
type tally struct {
	mutex sync.Mutex
	count int
	texts map[string]int
}

func (t *tally) add(text string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.count++
	if t.texts == nil {
		t.texts = map[string]int{}
	}
	if _, known := t.texts[text]; known || len(t.texts) < keptTexts {
		t.texts[text]++
	}
}

type tallyCopy struct {
	Count int            `json:"count"`
	Texts map[string]int `json:"texts"`
}

func (t *tally) copy() tallyCopy {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	texts := map[string]int{}
	maps.Copy(texts, t.texts)
	return tallyCopy{Count: t.count, Texts: texts}
}
