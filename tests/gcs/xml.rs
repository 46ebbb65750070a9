//! As much of the other API, over the same objects, as the `object_store` crate asks for.

use http::Method;

use super::fake::State;
use super::request::{Asked, Said};
use super::{BUCKET, md5_base64};

const LONG_AGO: &str = "Mon, 30 Nov 2026 10:00:00 GMT";

fn error(status: u16, code: &str) -> Said {
    let xml =
        format!("<?xml version='1.0'?><Error><Code>{code}</Code><Message>m</Message></Error>");
    Said::new(status, xml).with("content-type", "application/xml; charset=UTF-8")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

impl State {
    pub fn xml(&mut self, asked: &Asked) -> Said {
        // Here a key is as many segments as it has slashes, or one.
        let name = asked.path[1..].join("/");
        if name.is_empty() {
            return self.xml_list(asked);
        }
        match asked.method {
            Method::PUT => {
                if !self.holds(asked.header("x-goog-if-generation-match"), &name) {
                    return error(412, "PreconditionFailed");
                }
                if asked.hash_header().is_some_and(|told| told != md5_base64(&asked.body)) {
                    return error(400, "BadDigest");
                }
                self.insert(&name, asked.body.clone(), None);
                let generation = self.objects[&name].generation.to_string();
                let etag = format!("\"{}\"", md5_base64(&asked.body));
                Said::new(200, "").with("etag", etag).with("x-goog-generation", generation)
            }
            Method::DELETE if self.objects.remove(&name).is_some() => Said::new(204, ""),
            Method::GET | Method::HEAD if self.objects.contains_key(&name) => {
                let (mut query, mut path) = (asked.query.clone(), vec![String::new(); 5]);
                query.insert("alt".to_owned(), "media".to_owned());
                path.push(name.clone());
                let (headers, method) = (asked.headers.clone(), Method::GET);
                let (target, body) = (asked.target.clone(), asked.body.clone());
                let same = Asked { method, path, query, target, headers, body };
                let etag = format!("\"{}\"", md5_base64(&self.objects[&name].bytes));
                self.read(&same).with("etag", etag).with("last-modified", LONG_AGO)
            }
            _ => error(404, "NoSuchKey"),
        }
    }

    fn xml_list(&self, asked: &Asked) -> Said {
        assert_eq!(asked.parameter("list-type"), Some("2"));
        let prefix = asked.parameter("prefix").unwrap_or_default();
        let after = asked.parameter("continuation-token").unwrap_or_default();
        let of_prefix = self.objects.values().filter(|object| object.name.starts_with(prefix));
        let mut rest = of_prefix.filter(|object| object.name.as_str() > after).peekable();
        let (mut contents, mut last) = (String::new(), String::new());
        for object in rest.by_ref().take(self.page_max) {
            contents.push_str(&format!(
                "<Contents><Key>{}</Key><Size>{}</Size><ETag>\"e\"</ETag>\
                 <LastModified>2026-11-30T10:00:00.000Z</LastModified></Contents>",
                escaped(&object.name),
                object.bytes.len()
            ));
            last = escaped(&object.name);
        }
        let more = rest.peek().is_some();
        let token = format!("<NextContinuationToken>{last}</NextContinuationToken>");
        let token = if more { token } else { String::new() };
        Said::new(
            200,
            format!(
                "<?xml version='1.0' encoding='UTF-8'?><ListBucketResult><Name>{BUCKET}</Name>\
                 <IsTruncated>{more}</IsTruncated>{token}{contents}</ListBucketResult>"
            ),
        )
    }
}
