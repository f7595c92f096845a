"""Makes the fixtures of the tokenizer tests with the `tokenizers` package (0.23).

    pip install tokenizers
    python3 tests/tokenizer/make_fixtures.py

Each <name>.json is a small tokenizer with the normalizer, pre-tokenizer, model settings, decoder and post-processor of
a published one, trained on the texts below. <name>.ids.json holds what the package makes of every text of corpus.json:
the ids without and with special tokens, and the decoded text without and with special tokens (null where it equals the
text itself).
"""
import json
import pathlib
import random

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)

HERE = pathlib.Path(__file__).resolve().parent
SAMPLE = (HERE.parent.parent / "data" / "sample.txt").read_text()[:40000]

SCRIPTS = [
    "The quick brown fox jumps over the lazy dog. It's 12 o'clock, isn't it? We'll see; they've GONE, I'm SURE I'D KNOW.",
    "Zażółć gęślą jaźń. Příliš žluťoučký kůň úpěl ďábelské ódy. Größe, Straße, ŒUVRE, naïve café.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю. Їжак, ґанок, Ђорђе.",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. ὦ ξεῖν᾽, ἀγγέλλειν",
    "זה כיף סתם לשמוע איך תנצח קרפד עץ טוב בגן. שָׁלוֹם",
    "صِف خَلقَ خَودٍ كَمِثلِ الشَمسِ إِذ بَزَغَت ١٢٣٤٥ ۱۲۳",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश १२३४५ क़ ख़",
    "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า ๑๒๓ ກຳ ທຳ ខ្មែរ မြန်မာ",
    "天地玄黃宇宙洪荒日月盈昃辰宿列張。我有１２３個蘋果，你呢？「好」！二〇二四年",
    "いろはにほへと ちりぬるを カタカナ ﾊﾝｶｸ がぎぐげご が パピプペポ",
    "다람쥐 헌 쳇바퀴에 타고파 각 한글",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟘𝟙𝟚 Ⅷ ½ ² ﬁ ﬂ ㎏ ｆｕｌｌ ℌ Å Å é é ạ̈ ạ̈",
    "👍🏽 👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 ❤️ 1️⃣ 🫠 🧑🏿‍🚀",
    "ᏣᎳᎩ ሰማይ አይታረስ ვეპხის ტყაოსანი հայերեն ꦗꦮ ᚠᛇᚻ 𐌰𐌱 𓀀𓁐 ߒߞߏ",
]
CODE = [
    "def f(x):\n    if x > 0:\n\t\treturn {'a': [1, 2.5e-3], \"b\": x**2}  # comment\n\n\n    return None\n",
    "for (int i = 0; i < n; ++i) { a[i] += b->c * 0xFF; }\r\n// done\r\n#include <vector>\r\n",
    "<html><body class=\"x\">&nbsp;</body></html>\n\n<!-- http://example.org/?q=a%20b&c=1#frag -->",
    "SELECT * FROM t WHERE a <> 'it''s' AND b IN (1,22,333,4444,55555);",
]
EDGES = [
    "", " ", "  ", "   ", "\n", "\n\n", " \n ", "\t", "\r\n\r\n", "a", " a", "a ", "  a  ", "a  b   c    d",
    "hello\n\n\n   world  \n", "x\u00a0y\u3000z\u2003w\u200bv\u180eu\u0085t\u2028s\ufeffr", "\x00\x01\x02\x1b[31m\x7f\x9f",
    "1 12 123 1234 12345 3.14159 1,000,000 ١٢٣٤ Ⅷ ½", "'s 'S 'LL 'Ve it'S IT'S don't DON'T l'été 'ſ", "ǅ ǈ ß ẞ İ ı ŉ ſ K",
    "▁ ▁▁ a▁b ▁a ▁ ▁", "Ġ Ċ Ā <0x0A> <0xE2>", "e\u0301 e\u0301\u0301 \u0301a q\u0307\u0323 \u1100\u1161\u11a8", "\u0344\u0340 \u212b \u2126 \uf900 \U0001d15e",
    "...!!!???", "--- *** ___ ===", "a.b,c;d:e!f?g", "snake_case camelCase PascalCase SCREAMING_CASE kebab-case",
    "\ufffd\ufffd", "\U0010ffff\ue000\u0378", "á́́́", "ab" * 40, "a" * 300, " " * 300, "\n" * 70, "🙂" * 60, "字" * 90, "zxqj" * 200,
    # Newer than the tables of many a library: emoji, letters, digits and marks of Unicode 10 to 16.
    "a🫨🩷b \U0001f6dc \U0001e4d0\U0002ebf0\U00031350c \U0001e4f1\U00010d411 x\u07fd\u0323\u0c3c\u0301 \ua7cb\u1c89 \U00010781 \u2e5d\u1b7d",
    "word" + " " * 50 + "word", "=" * 80 + "\n", "\t" * 17 + "x", "\u200d\u200c\u200b\u2060",
]
SPECIALS = [
    "<s>", "</s>", "<|end|>", "a<|end|>b", " <|end|> ", "<|end|><|end|>", "<|end|", "<s>a</s>b", "x <mask> y", "x<mask>y",
    "foo bar foobar", "foo", "a foo.", "foofoo foo", "FOO Foo", "<|begin|>system\n\nYou are<|end|>\n<|begin|>user", "  <|strip|>  a",
    "a  <|strip|>", "<|strip|>\n\n<|strip|>", "<|en<|end|>d|>", "Ünï<|end|>cödé", "<|endx|> <|end|>x", "foo<|end|>foo",
]

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = [
    r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
]


def corpus():
    random.seed(1)
    alphabet = "ab cde'ſ0123456789.,\n\r\t ée\u0301ÄßİǅЖ中あ한\u1100\u1161👍🏽\u200d▁Ġ_-<>|\u00a0\u2003\u0085"
    noise = ["".join(random.choice(alphabet) for _ in range(random.randrange(1, 40))) for _ in range(60)]
    return SCRIPTS + CODE + EDGES + SPECIALS + noise + [SAMPLE[20000:21500]]


TRAINING = SCRIPTS * 3 + CODE * 3 + SAMPLE.split("\n\n") + [SAMPLE[:2000].upper()]


def added(tokenizer, *, strip=True):
    tokenizer.add_special_tokens(["<|begin|>", "<|end|>"])
    tokenizer.add_tokens([AddedToken("foo", single_word=True, normalized=False), AddedToken("<mask>", lstrip=True, special=True),
                          AddedToken("q̣̇", normalized=True)])
    if strip:
        tokenizer.add_tokens([AddedToken("<|strip|>", lstrip=True, rstrip=True, normalized=False)])


def byte_level(pre_tokenizer, normalizer=None, size=700, ignore_merges=False, post=None, initial=True):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    alphabet = pre_tokenizers.ByteLevel.alphabet() if initial else []
    tokenizer.train_from_iterator(TRAINING, trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False))
    tokenizer.decoder = decoders.ByteLevel()
    added(tokenizer)
    tokenizer.post_processor = post or processors.ByteLevel(trim_offsets=False)
    return tokenizer


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def no_regex():
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def sentencepiece(normalizer, pre_tokenizer, decoder, *, fallback=True, fuse=True, size=800, alphabet=60):
    """As converted from sentencepiece: <unk>, <s>, </s>, the bytes, then merges."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuse, byte_fallback=fallback))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    training_splitter = pre_tokenizer or split("▁", "merged_with_next")
    tokenizer.pre_tokenizer = training_splitter
    tokens = ["<unk>", "<s>", "</s>"] + ([f"<0x{i:02X}>" for i in range(256)] if fallback else [])
    tokenizer.train_from_iterator(TRAINING, trainers.BpeTrainer(vocab_size=size, special_tokens=tokens, limit_alphabet=alphabet,
                                                                show_progress=False))
    document = json.loads(tokenizer.to_str())
    document["added_tokens"] = [t for t in document["added_tokens"] if not t["content"].startswith("<0x")]
    if pre_tokenizer is None:
        document["pre_tokenizer"] = None
    tokenizer = Tokenizer.from_str(json.dumps(document))
    tokenizer.decoder = decoder
    added(tokenizer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    return tokenizer


LLAMA2_DECODER = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]


def llama3():
    pre = pre_tokenizers.Sequence([split(LLAMA3), no_regex()])
    tokenizer = byte_level(pre, ignore_merges=True)
    begin = tokenizer.token_to_id("<|begin|>")
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin|> $A", pair="<|begin|> $A <|begin|>:1 $B:1", special_tokens=[("<|begin|>", begin)])])
    return tokenizer


def suffix():
    """The original form, with a mark at the end of words and # in front of what continues one."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>", continuing_subword_prefix="#"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(True)])
    tokenizer.train_from_iterator(TRAINING, trainers.BpeTrainer(
        vocab_size=600, special_tokens=["<unk>"], end_of_word_suffix="</w>", continuing_subword_prefix="#", limit_alphabet=60,
        show_progress=False))
    tokenizer.decoder = decoders.BPEDecoder("</w>")
    added(tokenizer, strip=False)
    return tokenizer


def raw_bytes():
    """What gt exports where tokens are bytes (src/gt/tokenizer/byte_tokenizer.h): token i is the byte i."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    characters = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    tokenizer = Tokenizer(models.BPE(vocab={character: byte for byte, character in characters.items()}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


TOKENIZERS = {
    "bytes": raw_bytes,
    "llama3": llama3,
    "qwen2": lambda: byte_level(pre_tokenizers.Sequence([split(QWEN2), no_regex()]), normalizers.NFC()),
    "gpt2": lambda: byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "gpt2_prefix": lambda: byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True), initial=False),
    "gpt4o": lambda: byte_level(pre_tokenizers.Sequence([split(GPT4O), no_regex()])),
    "deepseek_v3": lambda: byte_level(pre_tokenizers.Sequence([split(p) for p in DEEPSEEK] + [no_regex()]), normalizers.Sequence([])),
    "starcoder": lambda: byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)]),
                                    normalizers.NFKC()),
    "contiguous": lambda: byte_level(pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation("contiguous"), split(r"\s+", "merged_with_previous"), split(r"\p{Lu}", "merged_with_next"),
        pre_tokenizers.Digits(False), pre_tokenizers.Split("e", "isolated"), no_regex()]), normalizers.NFD()),
    "inverted": lambda: byte_level(pre_tokenizers.Sequence([
        split(r"[\p{L}\p{M}]+|\p{N}+", "removed", True), no_regex()]),
        normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip()])),
    "llama2": lambda: sentencepiece(
        normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None, decoders.Sequence(LLAMA2_DECODER)),
    "mistral_first": lambda: sentencepiece(
        None, pre_tokenizers.Metaspace("▁", "first", split=False), decoders.Sequence(LLAMA2_DECODER)),
    "metaspace_always": lambda: sentencepiece(None, pre_tokenizers.Metaspace("▁", "always"), decoders.Metaspace("▁", "always"), fuse=False),
    "metaspace_never": lambda: sentencepiece(
        normalizers.Sequence([normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]),
        pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace("▁", "never")]),
        decoders.Metaspace("▁", "never"), fallback=False),
    "gemma": lambda: sentencepiece(normalizers.Replace(" ", "▁"), pre_tokenizers.Split(" ", "merged_with_previous"),
                                   decoders.Sequence(LLAMA2_DECODER[:3])),
    "suffix": suffix,
}

# Files from before 2024 write merges as "a b".
STRING_MERGES = {"gpt2", "llama2", "deepseek_v3"}


def document_of(name, tokenizer):
    document = json.loads(tokenizer.to_str())
    if name in STRING_MERGES:
        document["model"]["merges"] = [" ".join(pair) for pair in document["model"]["merges"]]
    return document


def expected(tokenizer, text):
    plain, special = tokenizer.encode(text, add_special_tokens=False).ids, tokenizer.encode(text).ids
    decoded = [tokenizer.decode(plain, skip_special_tokens=skip) if plain else "" for skip in (True, False)]
    return [plain, None if special == plain else special] + [None if d == text else d for d in decoded]


def write(name, value):
    (HERE / name).write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")


def main():
    texts = corpus()
    write("corpus.json", texts)
    for name, make in TOKENIZERS.items():
        document = document_of(name, make())
        tokenizer = Tokenizer.from_str(json.dumps(document))
        write(f"{name}.json", document)
        write(f"{name}.ids.json", [expected(tokenizer, text) for text in texts])


if __name__ == "__main__":
    main()
