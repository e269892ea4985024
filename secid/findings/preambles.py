"""How generators speak of their task: preambles, labels of prompts and refusals, in English and other languages.

`phrase` gives the words with which a text speaks of its making, None for a passage. Source: METHOD 14.
"""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

HEAD_WORDS = 12
"""Source: METHOD 14. A quotation in the middle of a passage is none of our business."""
HEAD_CHARACTERS = 160
"""Twelve words of any language that puts spaces between them, and more than is read in one that does not."""
FILLER_CHARACTERS = 16
"""In scripts without spaces, characters between "here is" and the word for a passage: with both within the first 24,
two a word."""

THING = r"(?:passage|document|paragraph|text|abstract|snippet|negative|response)s?"
"""What a generator is asked for. People offer examples, answers and versions too."""
MADE = (
    r"(?:hard|irrelevant|re-?written|rephrased|paraphrased|generated|synthetic|requested|hypothetical|plausible|"
    r"misleading|deceptive|distractor|relevant|\d+[\s-]*word)"
)
"""Signs that the passage was made to order."""
WRITES = r"(?:write|create|generate|provide|draft|compose|rewrite|produce|help\ you|help\ with)\b"
UNABLE = (
    r"i(?:\ (?:can(?:not|['’]?t|\ not)|could(?:\ not|n['’]?t)|will\ not|won['’]t)|"
    r"(?:\ am|['’]m)(?:\ currently)?\ (?:unable|not\ able)\ to)(?:\ \w+ly)?"
)
SERVICE = (
    r"(?:assist|comply|do\ so|help\ (?:you\ )?(?:with|create|write|generate)|fulfil+\ (?:this|that|your|the|any|such)|"
    r"(?:create|generate|provide|produce)\ (?:an?|any|the|this|that|such|you|your|content|passages?|documents?|texts?|"
    r"information|hard)|"
    r"(?:write|rewrite|complete|process|continue\ with)\ (?:\w+[\s-]+){0,5}?"
    r"(?:passage|document|text|content|request|prompt|task)s?)\b"
)
"""What a language model declines to do: "I can't help with that" is no title, "I Can't Make You Love Me" is one."""

ENGLISH = rf"""(?:
      (?:(?:sure|certainly|absolutely)(?:\ thing)?[\s,.!:–—-]+|(?:of\ course|okay|ok|great|no\ problem|understood)!\s+)
          (?:here|below)(?:\ is|\ are|['’]s)\ (?:an?|the|some|your|one|my|another|\d+)\b
    | (?:sure|certainly|absolutely|of\ course|okay|ok|alright|great|no\ problem|understood|got\ it)\b[\s,.!:–—-]+
          (?: (?:here|below)(?:\ is|\ are|['’]s)\ (?:one:|(?:[\w'’,-]+\s+){{1,6}}?(?:{THING}|example|version|answer)\b)
            | here\ you\ go
            | the\ following\ (?:is|are|{THING})\b
            | (?:let\ me|i(?:\ will|['’]ll|\ can|['’]d\ be\ (?:happy|glad)\ to))\ {WRITES}
            | i(?:\ have|['’]ve)\ (?:written|created|generated|drafted|composed|rewritten|produced)\b
          )
    | (?:sure|certainly)!\s
    | (?:here|below)(?:\ is|\ are|['’]s)\ (?:an?|one|another|some|your|my|the|two|three|four|
          five|ten|several|\d+)\s+          (?:[\w'’,-]+\s+){{0,6}}?(?:passage|negative)s?\b
    | (?:here|below)(?:\ is|\ are|['’]s)\ (?:an?|some|your|one)\s+(?:[\w'’,-]+\s+){{0,3}}?
          (?:document|text|paragraph)s?\ (?:about|on|that|which|for|describing|discussing|related)\b[^.!?:\n]{{0,120}}:
    | (?:(?:here|below)(?:\ is|\ are|['’]s)|the\ following\ (?:is|are))\ (?:(?:an?|the|one|some|your)\s+)?
          (?:[\w'’,-]+\s+){{0,4}}?{MADE}\b[\s,-]+(?:[\w'’,-]+\s+){{0,4}}?{THING}\b
    | \[?(?:hard[\s_-]*negative(?:[\s_-]+(?:passage|document|example|sample|text))?
          |negative[\s_-]+(?:passage|document|example|sample|text))\s*(?:\#?\d+\s*)?[:\]]
    | (?:hard\ |easy\ )?(?:negatives?|passage|document|query|requirements?)
          (?:\ \#?\d+)?[*_]*(?:\ ?\([^()]{{0,40}}\))?[*_]*\s*:
    | (?:the\ following|these|the\ above|all)\ (?:[\w'’,-]+\s+){{0,4}}?(?:passages|negatives)
          \ (?:all\ |each\ |both\ )?(?:meet|satisfy|fulfil+|match
              |(?:do|will|should|would|might|may)\ (?:not\ )?(?:answer|be|seem)
              |are\ (?:all\ )?(?:related|relevant|irrelevant|similar|designed|hard|plausible|misleading|topically))\b
    | (?:below|here)\ (?:you\ (?:will\ |can\ )?find|i\ (?:present|provide|give|list))\ (?:[\w'’,-]+\s+){{0,6}}?{THING}\b
    | (?:this|the\ (?:above|generated|following))\ (?:hard\ )?(?:passage|negative)
          \ (?:is|meets|satisfies|does\ not|was)\ (?:an?\ |the\ |answer\ the\ )?(?:hard\ negative|requirements?|query)\b
    | (?:generated|re-?written|synthetic)\ {THING}(?:\ \#?\d+)?\s*:
    | \#+\ *response\s*: | assistant\s*: | <\|?(?:assistant|im_start|start_header_id)\|?> | \[/?inst\]
    )"""
"""What a language model says before the text that it was asked for, or instead of it, and the labels of its prompts:
in words with which a passage does not open. Others show as openings that many negatives share."""


ENGLISH_REFUSAL = rf"""(?:
      as\ an?\ (?:ai|artificial\ intelligence|(?:(?:ai|artificial\ intelligence)\ )?(?:large\ )?language\ model
          |(?:ai|artificial\ intelligence)\ (?:assistant|model|chatbot|system))
          (?:\ (?:developed|created|trained|designed|made|built|without)\b[^,.!?\n]{{0,60}})?(?:,|(?=\ i\b))\s*
          (?:\w+ly,?\ )?(?:i|my|it(?:['’]s|\ is)\ (?:not|important))\b
    | i(?:\ am|['’]m)\ (?:very\ |so\ |really\ )?(?:sorry|afraid)\b,?\ (?:but\ |for\ [\w\ ]{{1,40}},?\ but\ |that\ )?
          (?:{UNABLE}\ (?:{SERVICE}|help\b(?!\ but)|provide\b|do\ th(?:at|is)\b)|as\ an?\ (?:ai|language|large)\b)
    | (?:(?:unfortunately|regrettably),?\ )?{UNABLE}\ {SERVICE}
    | i\ apologi[sz]e\b,?\ (?:but\ {UNABLE}
          |for\ (?:the|any|my)\ (?:confusion|misunderstanding|inconvenience|oversight)\b)
    )"""
"""How a language model declines what it was asked for."""


class Tongue(NamedTuple):
    r"""How a generator speaks in one language: regular expressions without anchors, blanks written `\ `.

    yes   : an assent before the text.             here  : "here is", "the following are".
    thing : a passage or negative as generators name it, alone of these never a passage's own subject.
    label : what a prompt calls its parts, before a number and a colon.
    sorry : how a refusal opens.                   unable: what it declines, within the next words.
    spaced: False for scripts without spaces between words.
    """

    yes: str
    here: str
    thing: str
    label: str
    sorry: str
    unable: str
    spaced: bool = True


TONGUES = {
    "de": Tongue(
        yes=r"(?:na\ )?klar|sicher|gerne?|natürlich|selbstverständlich|okay|ok|verstanden|alles\ klar",
        here=r"hier\ (?:ist|sind|kommt|kommen|finden\ sie|findest\ du)|(?:im\ folgenden|nachfolgend|"
        r"unten)\ (?:finden\ sie|ist|sind|stehen)|es\ folgen",
        thing=r"(?:text|negativ)?passagen?|textabschnitte?|absätze?|(?:hard[\ -])?negative?\w*|negativbeispiele?",
        label=r"(?:(?:harte|schwierige|schwere)[rs]?\ )?(?:negativ\w*|hard[\ -]negative)|(?:text)?passage|"
        r"textabschnitt|(?:such)?anfrage|anforderung(?:en)?",
        sorry=r"(?:es\ )?tut\ mir\ (?:sehr\ )?leid|entschuldigung|leider\ kann\ ich|ich\ kann|als\ (?:ein\ )?(?:ki|"
        r"sprachmodell)",
        unable=r"(?:nicht|keine?n?)\ (?:\S+\ ){0,4}?(?:helfen|behilflich|erfüllen|erstellen|generieren|verfassen|"
        r"nachkommen|bereitstellen|weiterhelfen)",
    ),
    "fr": Tongue(
        yes=r"bien\ s[uû]r|d['’]accord|certainement|volontiers|avec\ plaisir|absolument|compris",
        here=r"voici|voilà|ci-dessous|vous\ trouverez\ ci-dessous",
        thing=r"passages?|paragraphes?|négatifs?|exemples?\ négatifs?|textes?\ négatifs?",
        label=r"(?:exemple\ |passage\ )?négatif(?:\ difficile)?|passage|requête|exigences?",
        sorry=r"(?:je\ suis\ )?(?:vraiment\ )?désolée?|je\ ne\ (?:peux|suis)\ pas|je\ m['’]excuse|"
        r"en\ tant\ qu['’e]\ ?(?:ia|modèle|intelligence\ artificielle|assistant)",
        unable=r"(?:ne\ (?:peux|suis|puis)|pas|en\ mesure)\ (?:\S+\ ){0,4}?(?:aider|fournir|créer|générer|répondre|"
        r"rédiger|satisfaire|écrire)",
    ),
    "es": Tongue(
        yes=r"claro(?:\ que\ sí)?|por\ supuesto|desde\ luego|con\ gusto|seguro|entendido|de\ acuerdo|vale",
        here=r"aquí\ (?:tienes?|está|están|hay|va|van|le\ presento|te\ presento)|a\ continuación(?:\ se\ presentan?)?",
        thing=r"pasajes?|párrafos?|negativos?|ejemplos?\ negativos?",
        label=r"(?:ejemplo\ |pasaje\ )?negativo(?:\ difícil)?|pasaje|consulta|requisitos?",
        sorry=r"lo\ siento|lo\ lamento|disculpa|no\ puedo|como\ (?:una?\ )?(?:ia|modelo|inteligencia\ artificial|"
        r"asistente)",
        unable=r"no\ (?:puedo|me\ es\ posible)\ (?:\S+\ ){0,4}?(?:ayudar\w*|crear|generar|proporcionar|cumplir|"
        r"escribir|responder|ofrecer)",
    ),
    "it": Tongue(
        yes=r"certo|certamente|sicuro|ovviamente|naturalmente|va\ bene|volentieri|capito",
        here=r"ecco|di\ seguito(?:\ (?:trovi|trova|sono|è))?|qui\ sotto",
        thing=r"passaggi?o?|brani?o?|paragraf[io]|negativ[io]|esemp[io]+\ negativ[io]",
        label=r"(?:esempio\ |passaggio\ )?negativo(?:\ difficile)?|passaggio|brano|richiesta|requisit[io]",
        sorry=r"mi\ dispiace|spiacente|non\ posso|come\ (?:modello|ia|intelligenza\ artificiale|assistente)",
        unable=r"non\ (?:posso|sono\ in\ grado)\ (?:\S+\ ){0,4}?(?:aiutar\w*|creare|generare|fornire|soddisfare|"
        r"scrivere|rispondere)",
    ),
    "pt": Tongue(
        yes=r"claro|certamente|com\ certeza|com\ prazer|entendido|tudo\ bem|sim",
        here=r"aqui\ (?:está|estão|vai|vão|tens?|tem)|a\ seguir|abaixo\ (?:está|estão)|segue(?:m)?(?:-se)?",
        thing=r"passage(?:m|ns)|trechos?|parágrafos?|negativ[oa]s?|exemplos?\ negativos?",
        label=r"(?:exemplo\ |passagem\ )?negativ[oa](?:\ difícil)?|passagem|trecho|consulta|requisitos?",
        sorry=r"desculpe|sinto\ muito|lamento|não\ posso|como\ (?:uma?\ )?(?:ia|modelo|inteligência\ artificial|"
        r"assistente)",
        unable=r"não\ (?:posso|consigo)\ (?:\S+\ ){0,4}?(?:ajud\S*|criar|gerar|fornecer|atender|escrever|responder|"
        r"cumprir)",
    ),
    "nl": Tongue(
        yes=r"zeker|natuurlijk|uiteraard|graag|prima|begrepen",
        here=r"hier\ (?:is|zijn|volgt|volgen)|hieronder\ (?:staat|staan|vind\ je|volgt|volgen)",
        thing=r"passages?|tekstpassages?|alinea['’]?s?|negatieven?|negatieve\ (?:passages?|voorbeelden)",
        label=r"(?:moeilijke?\ |harde?\ )?negatie(?:f|ve)(?:\ passage|\ voorbeeld)?|passage|zoekvraag|vereisten?",
        sorry=r"(?:het\ )?spijt\ me|sorry|helaas\ kan\ ik|ik\ kan|als\ (?:een\ )?(?:ai|taalmodel)",
        unable=r"(?:niet|geen)\ (?:\S+\ ){0,4}?(?:helpen|maken|genereren|schrijven|voldoen|geven)",
    ),
    "pl": Tongue(
        yes=r"jasne|oczywiście|pewnie|dobrze|rozumiem|z\ przyjemnością",
        here=r"oto|poniżej\ (?:znajduj[eą]\ się|przedstawiam)|poniżej",
        thing=r"fragment(?:y|ów)?|akapit(?:y|ów)?|pasaże?|negatywn\w+\ (?:fragment|przykład)\w*|negatyw(?:y|ów)?",
        label=r"(?:trudny\ )?(?:negatywny\ (?:fragment|przykład)|negatyw)|fragment|zapytanie|wymagani[ea]",
        sorry=r"przepraszam|przykro\ mi|niestety|nie\ mogę|jako\ (?:model|sztuczna\ inteligencja|ai)",
        unable=r"nie\ (?:mogę|jestem\ w\ stanie)\ (?:\S+\ ){0,4}?(?:pomóc|stworzyć|wygenerować|napisać|spełnić|"
        r"dostarczyć)",
    ),
    "tr": Tongue(
        yes=r"elbette|tabii(?:\ ki)?|tabi|kesinlikle|memnuniyetle|tamam|anlaşıldı",
        here=r"işte|aşağıda",
        thing=r"pasaj(?:lar)?ı?|paragraf(?:lar)?ı?|negatif(?:ler)?|olumsuz\ (?:örnek|pasaj)(?:ler|lar)?",
        label=r"(?:zor\ )?(?:negatif|olumsuz)(?:\ (?:örnek|pasaj))?|pasaj|sorgu|gereksinim(?:ler)?",
        sorry=r"üzgünüm|özür\ dilerim|maalesef|bir\ (?:yapay\ zek[aâ]|dil\ modeli)",
        unable=r"(?:yardımcı|oluştur\S*|üret\S*|yaz\S*|yerine\ getir\S*)\ ?(?:olamam|olamıyorum|amam|emem|amıyorum|"
        r"emiyorum)",
    ),
    "id": Tongue(
        yes=r"tentu(?:\ saja)?|baik(?:lah)?|pasti|oke",
        here=r"berikut(?:\ ini)?(?:\ adalah)?|di\ bawah\ ini(?:\ adalah)?|inilah",
        thing=r"bagian\ teks|paragraf|kutipan|pasase|negatif|teks\ negatif|contoh\ negatif",
        label=r"(?:contoh\ |teks\ |paragraf\ )?negatif(?:\ sulit)?|paragraf|kueri|persyaratan",
        sorry=r"maaf|saya\ minta\ maaf|mohon\ maaf|sebagai\ (?:model\ bahasa|ai|asisten)",
        unable=r"tidak\ (?:dapat|bisa|mampu)\ (?:\S+\ ){0,4}?(?:membantu|membuat|menghasilkan|memenuhi|menulis|"
        r"memberikan)",
    ),
    "vi": Tongue(
        yes=r"chắc\ chắn(?:\ rồi)?|tất\ nhiên(?:\ rồi)?|được\ rồi|vâng|dĩ\ nhiên(?:\ rồi)?|được\ thôi",
        here=r"đây\ là|dưới\ đây\ là|sau\ đây\ là|dưới\ đây",
        thing=r"đoạn\ văn(?:\ bản)?|đoạn\ trích|ví\ dụ\ (?:âm\ tính|phủ\ định|tiêu\ cực)|negative",
        label=r"(?:đoạn\ văn|ví\ dụ)?\ ?(?:âm\ tính|phủ\ định|tiêu\ cực)(?:\ khó)?|đoạn\ văn|truy\ vấn|yêu\ cầu",
        sorry=r"(?:tôi\ )?(?:rất\ )?(?:xin\ lỗi|rất\ tiếc)|tôi\ không\ thể|là\ một\ (?:mô\ hình|ai|trí\ tuệ)",
        unable=r"không\ thể\ (?:\S+\ ){0,4}?(?:giúp|tạo|cung\ cấp|viết|đáp\ ứng|thực\ hiện|hỗ\ trợ)",
    ),
    "ru": Tongue(
        yes=r"конечно|разумеется|безусловно|хорошо|понятно|с\ удовольствием",
        here=r"вот|ниже\ (?:приведен[ыо]?|приведён|представлен[ыо]?|следуют)|ниже",
        thing=r"отрыв(?:ок|ка|ков|ки)|фрагмент(?:а|ов|ы)?|пассаж(?:а|ей|и)?|абзац(?:а|ев|ы)?|негатив\w*|"
        r"отрицательны\w*",
        label=r"(?:сложный\ |трудный\ )?(?:негативный|отрицательный)(?:\ (?:пример|отрывок|пассаж))?|негатив|отрывок|"
        r"пассаж|запрос|требовани[ея]",
        sorry=r"извините|простите|к\ сожалению|прошу\ прощения|я\ не\ могу|как\ (?:языковая\ модель|ии|"
        r"искусственный\ интеллект)",
        unable=r"не\ (?:могу|смогу|в\ состоянии)\ (?:\S+\ ){0,4}?(?:помочь|создать|сгенерировать|написать|выполнить|"
        r"предоставить)",
    ),
    "ar": Tongue(
        yes=r"بالتأكيد|بالطبع|طبعا|طبعًا|حسنا|حسنًا|بكل\ سرور|أكيد|نعم",
        here=r"إليكم?|فيما\ يلي|في\ ما\ يلي",
        thing=r"(?:ال)?(?:فقرة|فقرات|مقطع|مقاطع|نصوص\ سلبية|نص\ سلبي|سلبية|سلبي|سلبيات)",
        label=r"(?:(?:فقرة|مثال|مقطع|نص)\ )?(?:سلبي|سلبية)(?:\ صعبة?)?|فقرة|مقطع|(?:ال)?استعلام|(?:ال)?متطلبات?",
        sorry=r"عذر[اًا]+|آسفة?|أنا\ آسف|أعتذر|لا\ (?:أستطيع|يمكنني)|بصفتي|كنموذج\ لغ\w+",
        unable=r"(?:لا\ (?:أستطيع|يمكنني)|لست\ قادر\S*)\ (?:\S+\ ){0,4}?\S*(?:مساعدت|إنشاء|توليد|كتابة|تقديم|تلبية|"
        r"المساعدة)\S*",
    ),
    "hi": Tongue(
        yes=r"ज़रूर|जरूर|बिल्कुल|बिलकुल|निश्चित\ रूप\ से|हाँ|हां|ठीक\ है|अवश्य",
        here=r"यहाँ|यहां|नीचे|निम्नलिखित|प्रस्तुत\ (?:है|हैं)",
        thing=r"अनुच्छेद|गद्यांश|अंश|नकारात्मक\S*|नेगेटिव\S*|पैसेज",
        label=r"(?:कठिन\ )?(?:नकारात्मक|नेगेटिव)(?:\ (?:उदाहरण|अनुच्छेद|गद्यांश))?|अनुच्छेद|गद्यांश|पैसेज|प्रश्न|"
        r"आवश्यकता(?:एँ|एं)?",
        sorry=r"क्षमा\ करें|माफ़\ (?:करें|कीजिए)|माफ\ (?:करें|कीजिए)|मुझे\ खेद\ है|मैं\ (?:यह|इस|ऐसा)|एक\ (?:एआई|ai|"
        r"भाषा\ मॉडल)",
        unable=r"(?:सहायता|मदद|तैयार|उत्पन्न|प्रदान|पूरा|लिख|बना|उत्तर)\ ?(?:\S+\ ){0,3}?नहीं|"
        r"नहीं\ (?:\S+\ ){0,3}?(?:सकता|सकती)",
    ),
    "ko": Tongue(
        yes=r"물론(?:입니다|이죠|이에요)?|네|알겠습니다|그럼요|좋습니다",
        here=r"다음은|아래는|여기|다음과\ 같은|아래에",
        thing=r"(?:어려운\ )?(?:부정|네거티브|오답)\S*|(?:지문|구절|단락|문단|패시지)\S*",
        label=r"(?:어려운\ |하드\ )?(?:부정|네거티브)(?:\ ?(?:예시|예제|지문|구절|단락))?|지문|구절|단락|질의|쿼리|"
        r"요구\ ?사항",
        sorry=r"죄송(?:합니다|하지만|하지만요)|미안(?:합니다|하지만)|ai\ ?언어\ ?모델",
        unable=r"\S*(?:수\ (?:가\ )?없습니다|도와드릴\ 수\ 없|제공할\ 수\ 없|생성할\ 수\ 없|"
        r"작성할\ 수\ 없|드릴\ 수\ 없)\S*",
    ),
    "zh": Tongue(
        yes=r"好的|当然(?:可以)?|當然(?:可以)?|没问题|沒問題|可以|明白(?:了)?|是的|好",
        here=r"(?:以下|下面|这里|這裡|这|這)(?:是|为|為|有|提供|列出|给出|給出)|以下",
        thing=r"段落|文段|篇章|负例|負例|负样本|負樣本|负面|負面|否定(?:段落|例)|困难负|困難負|难负|難負",
        label=r"(?:困难|困難|难|難)?(?:负例|負例|负样本|負樣本|负面段落|負面段落)|段落|文段|查询|查詢|要求",
        sorry=r"抱歉|很抱歉|非常抱歉|对不起|對不起|不好意思|我(?:无法|無法|不能)|作为一?个?(?:ai|人工智能|语言模型)|作為一?個?(?:ai|人工智慧|語言模型)",
        unable=r"(?:无法|無法|不能)\S{0,8}?(?:提供|生成|创建|創建|撰写|撰寫|满足|滿足|完成|帮|幫|协助|協助|回答)",
        spaced=False,
    ),
    "ja": Tongue(
        yes=r"はい|承知(?:いた)?しました|もちろん(?:です)?|かしこまりました|了解(?:しました|です)?|わかりました",
        here=r"以下(?:は|に|が)|こちら(?:は|が|に)|次は",
        thing=r"パッセージ|文章|段落|ネガティブ|負例|否定例|不正解",
        label=r"(?:難しい|ハード)?(?:ネガティブ(?:例|パッセージ)?|負例|否定例)|パッセージ|段落|文章|クエリ|要件",
        sorry=r"申し訳(?:ありません|ございません)|すみません|ごめんなさい|ai(?:として|アシスタント)|(?:大規模)?言語モデルとして",
        unable=r"\S{0,10}?(?:できません|できかねます|お答えでき|対応でき|お手伝いでき|いたしかねます)",
        spaced=False,
    ),
    "th": Tongue(
        yes=r"ได้เลย(?:ครับ|ค่ะ)?|แน่นอน(?:ครับ|ค่ะ)?|ตกลง(?:ครับ|ค่ะ)?|ได้(?:ครับ|ค่ะ)",
        here=r"นี่คือ|ต่อไปนี้(?:คือ|เป็น)|ด้านล่าง(?:นี้)?(?:คือ|เป็น)",
        thing=r"ข้อความ|ย่อหน้า|ตัวอย่างเชิงลบ|บทความเชิงลบ",
        label=r"(?:ข้อความ|ตัวอย่าง)เชิงลบ|ย่อหน้า|ข้อความ|คำค้น(?:หา)?|ข้อกำหนด",
        sorry=r"ขออภัย|ขอโทษ|ฉันไม่สามารถ|ผมไม่สามารถ|ในฐานะ(?:ที่เป็น)?(?:ai|โมเดลภาษา|ปัญญาประดิษฐ์)",
        unable=r"\S{0,10}?ไม่สามารถ\S{0,10}?(?:ช่วย|สร้าง|ให้|เขียน|ตอบ|ทำ)",
        spaced=False,
    ),
}  # fmt: skip
"""By ISO 639-1 code. Written for this rule; each is tested on preambles and on passages of its language."""

BETWEEN_WORDS = r"(?:[^\s.!?:。]+\ ){0,6}?"
BETWEEN_CHARACTERS = rf"[^.!?:。！？：\n]{{0,{FILLER_CHARACTERS}}}?"
PAUSE = r"[,.!:–—，。、！：؛،\s-]"
COLON = r"[*_]*(?:\ ?[\(（][^()（）]{0,30}[\)）])?[*_]*\ ?[:：]"
ENDS = r"(?![^\W_])"
"""No letter follows; a mark may, as in Hindi."""


def _of(tongue: Tongue) -> str:
    """The pattern of one language, but for refusals."""
    between = BETWEEN_WORDS if tongue.spaced else BETWEEN_CHARACTERS
    blank, ends = (r"\ ", ENDS) if tongue.spaced else (r"\ ?", "")
    return rf"""(?:
      (?:(?:{tongue.yes}){PAUSE}+)?(?:{tongue.here}){blank}{between}(?:{tongue.thing}){ends}
    | (?:{tongue.yes})\ ?[,.!，。、！،]\ ?(?:{tongue.here}){ends}
    | (?:{tongue.label})(?:\ ?(?:\#|n[.º°]|№)?\ ?\d{{1,3}})?{COLON}
    )"""


def _refusal(tongue: Tongue) -> str:
    """The pattern of refusals in one language."""
    return rf"(?=(?:{tongue.sorry}))(?:[^\s]+\ ){{0,9}}?[^\s]*?{tongue.unable}"


def as_read(pattern: str) -> str:
    """A pattern with the letters that `plain_letters` leaves: no dotless i, and Thai's sara am in its two parts."""
    return pattern.replace("ı", "i").replace("\u0e33", "\u0e4d\u0e32")


MARKS = r"[\s\"'“”„«»「『【\[¡¿*#>_`-]*"
REFUSAL = "|".join([ENGLISH_REFUSAL, *map(_refusal, TONGUES.values())])
PATTERN = re.compile(
    as_read(rf"{MARKS}(?P<phrase>{'|'.join([ENGLISH, *map(_of, TONGUES.values())])}|(?P<refusal>{REFUSAL}))"),
    re.VERBOSE,
)
"""Of `head_of`: lower-cased letters are matched in half of the time that IGNORECASE takes."""
NUMBER = re.compile(r"\d+|\b(?:one|two|three|four|five|ten)\b")
SEPARATORS = re.compile(r"[\W_]+")


def phrase(text: str) -> str | None:
    """The words with which a text speaks of the task that it was generated for; None where it opens as a passage.

    Lower-cased, punctuation as single spaces, numbers as 0: "Hard negative 2:" and "hard negative 1 :" are one phrase.
    >>> phrase("Here are three HARD NEGATIVE passages that meet the requirements:")
    'here are 0 hard negative'
    """
    match = PATTERN.match(head_of(text))
    return None if match is None else SEPARATORS.sub(" ", NUMBER.sub("0", match["phrase"])).strip()


def is_refusal(text: str) -> bool:
    """True where a text declines what its writer was asked for: one of the phrases.

    >>> is_refusal("I'm sorry, but I can't help with that."), is_refusal("Sure! Here are three passages:")
    (True, False)
    """
    match = PATTERN.match(head_of(text))
    return match is not None and match["refusal"] is not None


def head_of(text: str) -> str:
    """The first words of a text in lower case, one blank between them, its letters in one form (NFKC, no dotless i)."""
    return plain_letters(" ".join(text[: 2 * HEAD_CHARACTERS].split(None, HEAD_WORDS)[:HEAD_WORDS])[:HEAD_CHARACTERS])


def plain_letters(text: str) -> str:
    """A text in lower case, its letters in one form (NFKC, no dotless i), as the patterns of this package expect it."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", text).lower().replace("i\u0307", "i").replace("ı", "i")
