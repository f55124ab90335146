//! The patterns of each language.

use std::sync::LazyLock;

use regex::Regex;

use crate::source::Language;

/// The patterns that the rules look for in one language.
pub(super) struct Patterns {
    /// A hash is made.
    pub(super) hash: Regex,
    /// The clock is read, or a random value is made.
    pub(super) chance: Regex,
    /// A call leaves the machine.
    pub(super) remote: Regex,
    /// A library that retries calls.
    pub(super) library: Regex,
}

impl Patterns {
    pub(super) fn of(language: Language) -> Option<&'static Self> {
        TABLE.iter().find(|(of, _)| *of == language).map(|(_, patterns)| patterns)
    }
}

static TABLE: LazyLock<Vec<(Language, Patterns)>> = LazyLock::new(|| {
    let read = |pattern: &str| {
        let pattern = pattern.replace("VERB", VERB).replace("FAR", FAR);
        Regex::new(&pattern).expect("a fixed pattern")
    };
    let rows = ROWS.iter().map(|(language, [hash, chance, remote, library])| {
        let [hash, chance, remote, library] = [hash, chance, remote, library].map(|p| read(p));
        (*language, Patterns { hash, chance, remote, library })
    });
    rows.collect()
});

const FAR: &str = r"(?i:\b\w*(?:client|http|api|stub|gateway|rpc)\w*)";
const VERB: &str = r"(?i:get|post|put|patch|delete|request|send|do|call|execute|exchange|invoke|publish|charge|create|submit|deliver)\w*";

/// For each language: hash, chance, remote call, retry library.
const ROWS: [(Language, [&str; 4]); 9] = [
    (
        Language::Rust,
        [
            r"Sha(?:1|256|512)::|blake3::|md5::|Hasher\b|new_v[35]\(|xxh3_64\(",
            r"::now\(|new_v4\(|random\(",
            r"FAR(?:\(\))?\.VERB\(|reqwest::get\(|ureq::",
            r"#\[retry\b|Retry::spawn\(|backoff::(?:future::)?retry\(",
        ],
    ),
    (
        Language::Python,
        [
            r"\bhashlib\.|\bhmac\.|\b(?:sha1|sha256|sha512|md5|hash)\(|\buuid[35]\(|\bxxhash\.|\bmmh3\.|\bcrc32\(",
            r"\buuid[14]\(|\btime\.time(?:_ns)?\(|\.(?:now|utcnow)\(|\brandom\.|\bsecrets\.token",
            r"FAR\.VERB\(|\b(?:requests|httpx|session)\.VERB\(|\burlopen\(",
            concat!(
                r"@(?:\w+\.)*(?:with_)?(?:retry|retries|retryable)(?:_\w+|ing)?\b",
                r"|@(?:backoff\.)?on_(?:exception|predicate)\b|\b(?:Async)?Retrying\(",
                r"|\b(?:tenacity|stamina)\.retry\w*\(|\bretry_call\(|\bautoretry_for\b",
            ),
        ],
    ),
    (
        Language::Script,
        [
            r"\bcreateHash\(|\bcreateHmac\(|\b(?:sha1|sha256|sha512|md5|hash|objectHash|murmurhash|crc32)\w*\(|CryptoJS\.(?:SHA|MD5)|subtle\.digest\(|\buuidv?5\(",
            r"\buuidv?4\(|randomUUID\(|Date\.now\(|new Date\(\)|Math\.random\(|\bnanoid\(|randomBytes\(",
            r"\bfetch\(|\baxios\b|\bgot(?:\.\w+)?\(|FAR\.VERB\(",
            r"\bp?[rR]etry\(\s*(?:async|\(|\{)|\basyncRetry\(|\baxiosRetry\(|\bbackOff\(",
        ],
    ),
    (
        Language::Go,
        [
            r"\b(?:sha1|sha256|sha512|md5|fnv|xxhash|crc32|blake2b|blake3)\.(?:Sum|New|Checksum)\w*\(|\bhmac\.New\(|uuid\.New(?:SHA1|MD5)\(",
            r"\btime\.Now\(|\brand\.|uuid\.New(?:String|Random)?\(|ulid\.Make\(",
            r"\bhttp\.(?:Get|Post|PostForm)\(|FAR\.VERB\(|\bretryablehttp\.",
            r"\bretry\.Do\w*\(|\bbackoff\.Retry\w*\(|\bretryablehttp\.NewClient\(",
        ],
    ),
    (
        Language::Jvm,
        [
            r"\bMessageDigest\b|\bDigestUtils\.|\bHashing\.|nameUUIDFromBytes\(|\.digest\(|\.hashCode\(|\bsha256\w*\(",
            r"UUID\.randomUUID\(|System\.(?:currentTimeMillis|nanoTime)\(|\w+\.now\(|Math\.random\(|new Random\(",
            r"FAR\.VERB\(|\brestTemplate\.VERB\(",
            r"@Retryable\b|@Retry\(|\bRetry\.decorate\w+\(|\bretryTemplate\.execute\(",
        ],
    ),
    (
        Language::CSharp,
        [
            r"\bSHA(?:1|256|512)\.|\bMD5\.|\bHashData\(|\bComputeHash\(|\.GetHashCode\(|\bHMACSHA\d+",
            r"Guid\.NewGuid\(|DateTime(?:Offset)?\.(?:Utc)?Now|Random\.Shared|new Random\(",
            r"FAR\.VERB\(|AddTransientHttpErrorPolicy\(",
            r"\.(?:WaitAndRetry|Retry)(?:Forever)?(?:Async)?\(|AddTransientHttpErrorPolicy\(",
        ],
    ),
    (
        Language::Ruby,
        [
            r"\bDigest::|\bOpenSSL::(?:Digest|HMAC)|\buuid_v5\b|\bZlib\.crc32",
            r"\bSecureRandom\.|\bTime\.(?:now|current)|\bDateTime\.now|\brand\(",
            r"\bNet::HTTP\b|\b(?:Faraday|HTTParty|RestClient)\.VERB|FAR\.VERB",
            r"\bRetriable\.retriable|\bwith_retries\b|^\s*retry\b",
        ],
    ),
    (
        Language::Php,
        [
            r"\b(?:hash|sha1|md5|crc32|hash_hmac)\(|Uuid::(?:uuid|v)[35]\(",
            r"\buniqid\(|\btime\(\)|\bmicrotime\(|\brandom_bytes\(|\b(?:mt_)?rand\(|Uuid::(?:uuid|v)4\(",
            r"\$\w*(?i:client|http|api|gateway)\w*->VERB\(|\bHttp::VERB\(|\bcurl_exec\(",
            r"(?:\b|->)retry\(\s*\d",
        ],
    ),
    (
        Language::Shell,
        [
            r"\b(?:sha\d+sum|md5sum|shasum|cksum)\b|\bopenssl\s+(?:dgst|sha\d+|md5)\b",
            r"\$\(\s*(?:date|uuidgen)\b|\$\{?RANDOM\b",
            // A repeated read changes nothing, and scripts often wait for servers.
            r"\bcurl\b.*(?:-X\s*(?:POST|PUT|PATCH|DELETE)|--data|\s-d\s|\s-F\s)",
            r"\bcurl\b.*--retry\b.*(?:-X\s*(?:POST|PUT|PATCH|DELETE)|--data|\s-d\s|\s-F\s)",
        ],
    ),
];
