package key

// part writes one content part of Chat Completions or Responses. The kinds of
// both are read in both, as vLLM does.
func (r *reader) part(at int) int {
	switch r.body[at] {
	case '"':
		end := skipString(r.body, at+1)
		if end == bad {
			return r.refuse(ReasonInvalid)
		}
		if !r.text(tagText, Span{at, end}) {
			return bad
		}
		return end
	case '{':
	default:
		return r.refuse(ReasonInvalid)
	}
	var p struct {
		kind, uuid, text, refusal, name              Span
		imageURL, audioURL, videoURL, inputAudio     Span
		imageEmbeds, audioEmbeds, promptEmbeds, data Span
		file, fileData, fileID, fileURL              Span
	}
	o := r.object(at)
	for o.next(r) {
		switch string(o.name) {
		case "type":
			p.kind = o.value
		case "uuid":
			p.uuid = o.value
		case "text":
			p.text = o.value
		case "refusal":
			p.refusal = o.value
		case "name":
			p.name = o.value
		case "image_url":
			p.imageURL = o.value
		case "audio_url":
			p.audioURL = o.value
		case "video_url":
			p.videoURL = o.value
		case "input_audio":
			p.inputAudio = o.value
		case "image_embeds":
			p.imageEmbeds = o.value
		case "audio_embeds":
			p.audioEmbeds = o.value
		case "prompt_embeds":
			p.promptEmbeds = o.value
		case "data":
			p.data = o.value
		case "file":
			p.file = o.value
		case "file_data":
			p.fileData = o.value
		case "file_id":
			p.fileID = o.value
		case "file_url":
			p.fileURL = o.value
		}
	}
	if !o.ok {
		return r.refuse(ReasonInvalid)
	}
	if r.null(p.kind) { // the short forms {"image_url": "..."}
		switch {
		case p.imageURL != Span{}:
			return o.after(r.linked(tagImage, p.uuid, p.imageURL, "url"))
		case p.audioURL != Span{}:
			return o.after(r.linked(tagAudio, p.uuid, p.audioURL, "url"))
		case p.videoURL != Span{}:
			return o.after(r.linked(tagVideo, p.uuid, p.videoURL, "url"))
		}
		return r.refuse(ReasonPart)
	}
	kind, ok := r.str(p.kind)
	if !ok {
		return r.refuse(ReasonInvalid)
	}
	switch string(kind) {
	case "text", "input_text", "output_text":
		return o.after(r.text(tagText, p.text))
	case "refusal":
		return o.after(r.text(tagText, p.refusal))
	case "thinking":
		return o.after(true)
	case "tool_reference":
		return o.after(r.text(tagReference, p.name))
	case "image_url":
		return o.after(r.linked(tagImage, p.uuid, p.imageURL, "url"))
	case "input_image":
		if r.null(p.imageURL) {
			return o.after(r.media(tagImage, p.uuid, p.fileID))
		}
		return o.after(r.linked(tagImage, p.uuid, p.imageURL, "url"))
	case "audio_url":
		return o.after(r.linked(tagAudio, p.uuid, p.audioURL, "url"))
	case "video_url":
		return o.after(r.linked(tagVideo, p.uuid, p.videoURL, "url"))
	case "input_audio":
		return o.after(r.linked(tagAudio, p.uuid, p.inputAudio, "data"))
	case "image_embeds":
		return o.after(r.media(tagImageEmbeds, p.uuid, p.imageEmbeds))
	case "audio_embeds":
		return o.after(r.media(tagAudioEmbeds, p.uuid, p.audioEmbeds))
	case "prompt_embeds":
		return o.after(r.media(tagEmbeds, p.uuid, p.promptEmbeds, p.data))
	case "file":
		return o.after(r.linked(tagFile, p.uuid, p.file, "file_data", "file_id"))
	case "input_file":
		return o.after(r.media(tagFile, p.uuid, p.fileData, p.fileID, p.fileURL))
	}
	return r.refuse(ReasonPart)
}

// linked writes a media part whose value is a string, or an object that holds
// it under the first of names that is there.
func (r *reader) linked(tag byte, uuid, s Span, names ...string) bool {
	switch r.kind(s) {
	case 0, 'n', '"':
		return r.media(tag, uuid, s)
	case '{':
	default:
		return r.fail(ReasonInvalid)
	}
	var found [2]Span
	o := r.object(s.Start)
	for o.next(r) {
		for i, name := range names {
			if string(o.name) == name {
				found[i] = o.value
			}
		}
	}
	if !o.ok {
		return r.fail(ReasonInvalid)
	}
	return r.media(tag, uuid, found[0], found[1])
}
