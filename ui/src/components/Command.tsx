import { useState } from 'react';
import { Button } from './Button';

// Command is a line for a shell, with a button that copies it.
export function Command({ text }: { text: string }) {
  const [copied, setCopied] = useState(false);
  return (
    <div className="command">
      <code>{text}</code>
      <Button
        look="quiet"
        aria-label={copied ? 'Copied' : 'Copy the command'}
        onPress={() => {
          void navigator.clipboard.writeText(text).then(() => setCopied(true));
        }}
      >
        {copied ? '✓' : 'Copy'}
      </Button>
    </div>
  );
}
