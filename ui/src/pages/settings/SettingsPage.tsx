import { useState } from 'react';
import { useCollection } from '../../api/live';
import type { Setting } from '../../api/types';
import { Read } from '../../components/Read';
import { TextInput } from '../../components/TextInput';
import { byCategory } from '../../lib/settings';
import { SettingRow } from './SettingRow';

export default function SettingsPage() {
  const settings = useCollection('settings');
  return (
    <>
      <h1>Settings</h1>
      <Read query={settings} what="settings">
        {(list) => <SettingList settings={list} />}
      </Read>
    </>
  );
}

function SettingList({ settings }: { settings: Setting[] }) {
  const [text, setText] = useState('');
  const groups = byCategory(settings, text);
  return (
    <>
      <div className="toolbar">
        <TextInput label="Search" value={text} onChange={setText} type="search" />
      </div>
      {groups.length === 0 && <p>No setting matches the search.</p>}
      {groups.map(([category, list]) => (
        <section key={category} className="card" aria-labelledby={`category-${category}`}>
          <h2 id={`category-${category}`}>{category.charAt(0).toUpperCase() + category.slice(1)}</h2>
          {list.map((s) => (
            <SettingRow key={s.name} setting={s} />
          ))}
        </section>
      ))}
    </>
  );
}
